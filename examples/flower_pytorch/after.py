"""A plain Flower app in PyTorch: five clients with skewed labels learn to read scikit-learn's digits together."""

import numpy as np
import torch
from fedeas import augment
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

CLIENTS, ROUNDS, EPOCHS, ALPHA = 5, 3, 3, 0.1

client_app, server_app = ClientApp(), ServerApp()


def scaled(pixels):
    """Pixels from 0 to 255 as the network takes them."""
    return pixels.float() / 255


def load_split():
    """Training and test part, a fifth of each class by a fixed seed: as FedEAS's generator of digits knows them."""
    values, labels = load_digits(return_X_y=True)
    pixels = np.rint(values * 255 / 16).astype(np.uint8).reshape(-1, 1, 8, 8)
    rng, is_test = np.random.default_rng(0), np.zeros(len(labels), bool)
    for label in range(10):
        members = rng.permutation(np.flatnonzero(labels == label))
        is_test[members[: round(0.2 * members.size)]] = True
    images, labels = scaled(torch.from_numpy(pixels)), torch.from_numpy(labels)
    return (images[~is_test], labels[~is_test]), (images[is_test], labels[is_test])


def load_client(client):
    """One client's part: every class is split over the clients by shares from a Dirichlet distribution."""
    (images, labels), _ = load_split()
    rng, mine = np.random.default_rng(1), []
    for label in range(10):
        members = rng.permutation(np.flatnonzero(labels == label))
        cuts = np.cumsum(rng.dirichlet([ALPHA] * CLIENTS))[:-1] * members.size
        mine.append(np.split(members, cuts.astype(int))[client])
    chosen = np.concatenate(mine)
    return images[chosen], labels[chosen]


def build_model():
    """A small CNN, the same at every start."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 4 * 4, 10),
    )  # fmt: skip


def fit(model, batches):
    """Train in place."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(EPOCHS):
        for images, labels in batches:
            optimizer.zero_grad()
            cross_entropy(model(images), labels).backward()
            optimizer.step()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """A client's part of a round."""
    client = int(context.node_config["partition-id"])
    images, labels = load_client(client)
    data = TensorDataset(images, labels)
    data = augment(data, labels, 10, "diffusion(weights=digits)", bank="runs/.bank", client=client, transform=scaled)
    model = build_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    fit(model, DataLoader(data, batch_size=32, shuffle=True))
    metrics = {"num-examples": len(data), "trained-on": len(data)}
    metrics["num-examples"] = data.num_real
    reply = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)})
    return Message(content=reply, reply_to=message)


def totals(replies, weighted_by):
    """Metrics summed over the clients."""
    records = [reply["metrics"] for reply in replies]
    return MetricRecord({name: sum(record[name] for record in records) for name in records[0]})


def evaluate(round, arrays):
    """Accuracy of the global model on the test part."""
    _, (images, labels) = load_split()
    model = build_model()
    model.load_state_dict(arrays.to_torch_state_dict())
    with torch.no_grad():
        hits = model(images).argmax(dim=1) == labels
    return MetricRecord({"accuracy": hits.float().mean().item()})


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """FedAvg over all clients."""
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=CLIENTS, train_metrics_aggr_fn=totals)
    result = strategy.start(grid, ArrayRecord(build_model().state_dict()), num_rounds=ROUNDS, evaluate_fn=evaluate)
    for number, sums in result.train_metrics_clientapp.items():
        accuracy = result.evaluate_metrics_serverapp[number]["accuracy"]
        print(f"round {number}: accuracy {accuracy:.3f}, weight {sums['num-examples']}, samples {sums['trained-on']}")


if __name__ == "__main__":
    one_at_a_time = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 1}}
    run_simulation(server_app, client_app, CLIENTS, backend_config=one_at_a_time)
