"""Clients that train their generator before the first round: laws of the rounds, of resuming and of sharing."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from fedeas.algorithms.base import Fleet, Reply
from fedeas.config import load_config
from fedeas.core.errors import InputError, SpecError
from fedeas.core.provenance import Seen
from fedeas.federation import clients
from fedeas.federation.generator_rounds import DiffusionRounds
from fedeas.federation.parts import seen_by_generator
from fedeas.federation.run import execute
from fedeas.federation.split import load_data
from fedeas.generators.diffusion import presets
from fedeas.generators.diffusion.presets import PRESETS, Network
from fedeas.generators.diffusion.updates import ClientUpdates, initial_network, read_moments, sent_moments
from fedeas.generators.diffusion.weights import Weights, half
from fedeas.generators.kinds import parse_generator
from fedeas.runs.store import RunStore

SHAPE, CLASSES = (1, 8, 8), tuple("ab")
TINY = replace(PRESETS["digits"], network=Network((8, 8), layers=1, attention=(False, False), groups=4), steps=2)
RECIPE = "rounds=4, clients=3, steps=2, batch=4"
BASE = ["partition.clients=5", "rounds.total=2", "rounds.participation=0.6", "train.epochs=1", "train.lr=0.05",
        "engine.threads=1", "engine.name=local", "policy=fedeas(beta=1)"]  # fmt: skip


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "digits", TINY)


def config(*more, recipe=RECIPE):
    return load_config(None, [*BASE, f"generator=federated(of=diffusion(precision=fp32), {recipe})", *more])


def trained_in(root):
    """The tensors of every generator that was trained in this folder, by folder."""
    return {file.parent.name: load_file(file) for file in root.glob(".generators/*/generator.safetensors")}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class Counted:
    """Notes the rounds of a stage; may stop or fail after one of them."""

    def __init__(self, stop_after=None, fail_after=None):
        self.records, self.stop_after, self.fail_after = [], stop_after, fail_after

    def __call__(self, record, of):
        self.records.append(record)
        if record["round"] == self.fail_after:
            raise KeyboardInterrupt
        return record["round"] == self.stop_after


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run whose clients trained their generator without interruption."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(presets.PRESETS, "digits", TINY)
        root, seen = tmp_path_factory.mktemp("whole"), Counted()
        run = execute(config(), RunStore(root), on_stage=seen)
    return run, seen.records, root


class TestTheStage:
    def test_it_is_part_of_a_run_and_costs_what_travels(self, whole):
        run, records, root = whole
        assert [record["round"] for record in records] == [1, 2, 3, 4]
        [tensors] = trained_in(root).values()
        cost, file = run.summary()["generator"], next(root.glob(".generators/*/generator.safetensors"))
        travels = [
            own.numel() + len(own) + (own.numel() // len(own) if own.ndim > 1 else 0) for own in tensors.values()
        ]  # weights, means of rows and of columns
        assert cost["bytes"]["up"] == 2 * sum(travels) * 4 * 3 / 5  # in bf16; 4 rounds of 3 of 5 clients
        assert cost["bytes"]["down"] == cost["bytes"]["up"] + file.stat().st_size
        assert cost["rounds"] == 4

    def test_its_losses_are_golden(self, whole):
        losses = [record["train_loss"] for record in whole[1]]
        assert losses == pytest.approx([0.98687, 0.98754, 0.97651, 0.92276], rel=1e-3)

    def test_the_weights_say_who_trained_them_and_on_what(self, whole):
        run, _, root = whole
        about = Weights.load(next(root.glob(".generators/*/generator.safetensors"))).provenance
        assert about["seen"]["dataset"] == "digits" and about["seen"]["parts"] == ["train"]
        assert about["federated"]["clients"] == 5 and about["federated"]["partition"] == run.content.partition
        assert about["updates"] == 4 * 3 * 2

    @pytest.mark.parametrize("after", [1, 3])
    def test_a_stage_that_stops_or_fails_continues_bit_for_bit(self, whole, tmp_path, after):
        store = RunStore(tmp_path)
        assert not execute(config(), store, on_stage=Counted(stop_after=after)).finished
        with pytest.raises(KeyboardInterrupt):
            execute(config(), store, on_stage=Counted(fail_after=after + 1))
        run = execute(config(), store)
        assert same(*(next(iter(trained_in(root).values())) for root in (whole[2], tmp_path)))
        assert run.summary()["accuracy"] == whole[0].summary()["accuracy"]
        assert not list(tmp_path.glob(".generators/*/checkpoint.safetensors"))

    def test_processes_train_the_same(self, whole, tmp_path):
        execute(config("engine.name=fast", "engine.processes=2"), RunStore(tmp_path))
        assert same(*(next(iter(trained_in(root).values())) for root in (whole[2], tmp_path)))

    def test_other_policies_algorithms_and_seeds_share_it(self, whole):
        store = RunStore(whole[2])
        for more in (["policy=uniform(budget=9)", "seed=3"], ["algorithm=fedprox"]):
            seen = Counted()
            execute(config("rounds.total=1", *more), store, on_stage=seen)
            assert seen.records == []
        shared = config("rounds.total=1").model_copy(update={"generator": f"shared(of=federated({RECIPE}))"})
        execute(shared, store, on_stage=seen)
        assert seen.records == []

    @pytest.mark.parametrize("more", [["partition.seed=7"], ["data.protocol=paper", "partition.scheme=paper"]])
    def test_other_clients_do_not(self, whole, more):
        seen = Counted(stop_after=1)
        execute(config(*more), RunStore(whole[2]), on_stage=seen)
        assert seen.records

    @pytest.mark.parametrize("recipe", ["seed=1", "lr=0.001", "moments=none", "messages=fp32", "steps=3"])
    def test_other_recipes_do_not(self, whole, recipe):
        seen, recipe = Counted(stop_after=1), f"{RECIPE.replace('steps=2', '')}, {recipe}".replace(", ,", ",")
        execute(config(recipe=recipe), RunStore(whole[2]), on_stage=seen)
        assert seen.records

    def test_a_run_without_images_trains_none(self, tmp_path):
        execute(config("policy=no-generation"), RunStore(tmp_path), on_stage=Counted(fail_after=1))
        assert not (tmp_path / clients.FOLDER).exists()

    def test_clients_with_one_image_take_part(self, tmp_path):
        owners = tmp_path / "split.csv"
        rows = [f"{index},train,{min(index, 2)}" for index in range(30)]
        owners.write_text("\n".join(["sample,part,client", *rows]))
        more = ["partition.scheme=file", f"partition.file={owners}", "partition.clients=3"]
        try:
            run = execute(config(*more), RunStore(tmp_path))
        except InputError as error:  # the form of a split file is not this test's matter
            pytest.fail(str(error))
        assert run.finished


class TestBadInput:
    def test_more_clients_than_there_are(self, tmp_path):
        with pytest.raises(InputError, match=r"federated\(clients=9\): the run has 5 clients"):
            execute(config(recipe="clients=9"), RunStore(tmp_path))
        assert not list(tmp_path.iterdir())

    def test_a_start_of_another_size(self, tmp_path):
        with pytest.raises(InputError, match="makes images of 3 x 32 x 32 and the run has 1 x 8 x 8"):
            execute(config(recipe="clients=3, start=cifar10"), RunStore(tmp_path))

    @pytest.mark.parametrize(
        ("spec", "words"),
        [
            ("federated(of=gaussian, rounds=3)", "leave rounds out"),
            ("federated(of=sd-turbo)", "clients train diffusion or gaussian"),
            ("federated(of=diffusion(weights=digits))", "without weights"),
            ("federated(ema=1)", "from 0 to below 1"),
            ("federated(moments=some)", "moments"),
        ],
    )
    def test_specs(self, spec, words):
        with pytest.raises(SpecError, match=words.replace("(", r"\(")):
            parse_generator(spec)


def rounds_of(**recipe):
    chosen = parse_generator("federated(rounds=3, clients=1, steps=2, batch=4)")
    return DiffusionRounds(replace(chosen, **recipe), replace(TINY, batch=4), len(CLASSES))


def random_arrays(algorithm, seed):
    """A message of a client, with random numbers."""
    network = initial_network(algorithm.preset, SHAPE, CLASSES, seed, None)
    arrays = algorithm.broadcast(algorithm.init(network, Fleet(np.array([1]), 2)), 0)
    stream = torch.Generator().manual_seed(seed)
    return {key: torch.rand(own.shape, generator=stream) for key, own in arrays.items()}


class TestTheServer:
    def test_it_adds_the_mean_change_by_size(self):
        rounds = rounds_of(moments="all", messages="fp32")
        network = initial_network(rounds.preset, SHAPE, CLASSES, 0, None)
        server = rounds.init(network, Fleet(np.array([1, 3]), 2))
        replies = [Reply(client, weight, random_arrays(rounds, client)) for client, weight in ((0, 1), (1, 3))]
        after = rounds.server_update(server, replies, 0)
        for key in replies[0].arrays:
            mean = (replies[0].arrays[key] + 3 * replies[1].arrays[key]) / 4
            torch.testing.assert_close(after[key], mean + (server[key] if key.startswith("model/") else 0))
        name = next(key.removeprefix("model/") for key in server if key.startswith("model/"))
        torch.testing.assert_close(after[f"mean/{name}"], 0.1 * server[f"mean/{name}"] + 0.9 * after[f"model/{name}"])

    def test_a_reply_that_is_not_finite_counts_for_nothing(self, caplog):
        rounds = rounds_of()
        server = rounds.init(initial_network(rounds.preset, SHAPE, CLASSES, 0, None), Fleet(np.array([1, 3]), 2))
        good, bad = (Reply(client, 1, random_arrays(rounds, client)) for client in (0, 1))
        next(iter(bad.arrays.values())).view(-1)[0] = torch.nan
        one, other = (rounds.server_update(server, replies, 0) for replies in ([good], [good, bad]))
        assert same(one, other)
        assert "[1]" in caplog.text
        assert same(server, rounds.server_update(server, [bad], 0))


class TestTheClient:
    def test_rounds_of_one_client_equal_an_uninterrupted_adam(self):
        """With both moments in fp32, a round's end changes nothing."""
        images, labels = torch.randint(256, (9, *SHAPE), dtype=torch.uint8), torch.randint(2, (9,))
        rounds = rounds_of(moments="all", messages="fp32")

        def network():
            return ClientUpdates(
                initial_network(rounds.preset, SHAPE, CLASSES, 0, None),
                rounds.preset,
                SHAPE,
                2,
                torch.device("cpu"),
                False,
            )

        cut, straight = network(), network()
        names = [name for name, _ in cut.network.named_parameters()]
        zeros = {name: torch.zeros_like(own) for name, own in cut.network.named_parameters()}
        weights = {f"model/{name}": own.detach().clone() for name, own in cut.network.named_parameters()}
        sent = weights | sent_moments(zeros, zeros, "all")
        straight.begin(sent, "all", 0, 0)
        for round in range(3):
            cut.begin(sent, "all", 2 * round, round)
            straight.random.manual_seed(round)
            losses = [updates.train(images, labels, [1e-3, 1e-3]) for updates in (cut, straight)]
            assert losses[0] == losses[1]
            sent = {key: own.clone() for key, own in cut.result("all").items()}
        assert same(cut.result("all"), straight.result("all"))
        assert len(names) * 3 == len(sent)

    @settings(max_examples=20, deadline=None)
    @given(st.integers(0, 99), st.integers(2, 5))
    def test_means_of_rows_and_columns_are_linear_and_exact_for_rank_one(self, seed, clients):
        stream = torch.Generator().manual_seed(seed)
        second = [
            {"w": torch.rand(4, 3, generator=stream), "b": torch.rand(4, generator=stream)} for _ in range(clients)
        ]
        sent = [sent_moments(own, own, "factored") for own in second]
        mean = {name: sum(own[name] for own in second) / clients for name in second[0]}
        for key, own in sent_moments(mean, mean, "factored").items():
            torch.testing.assert_close(own, sum(each[key] for each in sent) / clients)
        outer = {
            "w": torch.outer(second[0]["b"], torch.rand(3, generator=stream)).reshape(4, 3, 1),
            "b": second[0]["b"],
        }
        arrays = {f"model/{name}": own for name, own in outer.items()} | sent_moments(outer, outer, "factored")
        back = read_moments(arrays, ["w", "b"], "factored")
        for found, own in zip(back["exp_avg_sq"], outer.values(), strict=True):
            torch.testing.assert_close(found, own)
        assert not any(own.any() for own in back["exp_avg"])


class TestGaussian:
    SPEC = "generator=federated(of=gaussian(components=5))"

    def test_it_is_the_pooled_one_bit_for_bit(self, tmp_path):
        run = execute(config(self.SPEC), RunStore(tmp_path / "federated"))
        pooled = execute(config("generator=gaussian(components=5, basis=dct)"), RunStore(tmp_path / "pooled"))
        assert run.generator().fingerprint == pooled.generator().fingerprint
        assert [record["accuracy"] for record in run.rounds()] == [record["accuracy"] for record in pooled.rounds()]
        assert run.summary()["generator"]["rounds"] == 1

    def test_other_components_are_another_generator(self, tmp_path):
        for components in (5, 6):
            execute(config(f"generator=federated(of=gaussian(components={components}))"), RunStore(tmp_path))
        assert len(list(tmp_path.glob(".generators/*/generator.safetensors"))) == 2


class TestTheStart:
    """Weights that have seen the run's images, themselves or in an ancestor, are refused."""

    @staticmethod
    def start(path, *seen):
        """Tiny weights whose trainings saw these datasets, the first one last; no dataset is no record."""
        record = None
        for dataset in reversed(seen):
            record = Seen(dataset, ("train",) if dataset else (), None, record)
        network = initial_network(TINY, SHAPE, tuple(map(str, range(10))), 0, None)
        weights = Weights(TINY.network, SHAPE, tuple(map(str, range(10))), half(network.state_dict()))
        replace(weights, provenance={"seen": record.record} if record else {}).save(path)
        return path

    def test_an_ancestor_that_saw_the_clients_images(self, tmp_path):
        start = self.start(tmp_path / "start.safetensors", "cifar100", "digits")
        with pytest.raises(InputError, match="continued from digits"):
            execute(config(recipe=f'{RECIPE}, start="{start}"'), RunStore(tmp_path / "runs"))
        assert not (tmp_path / "runs").exists()
        run = execute(config(recipe=f'{RECIPE}, start="{start}", allow_seen=true'), RunStore(tmp_path / "runs"))
        assert run.summary()["seen"] == "seen"

    @pytest.mark.parametrize(("seen", "answer"), [(["cifar100"], None), (["cifar100", ""], "unknown"), ([], "unknown")])
    def test_others_are_accepted_and_named(self, tmp_path, seen, answer):
        start = self.start(tmp_path / "start.safetensors", *seen)
        run = execute(config(recipe=f'{RECIPE}, start="{start}"'), RunStore(tmp_path / "runs"))
        assert run.summary().get("seen") == answer
        file = next((tmp_path / "runs").glob(".generators/*/generator.safetensors"))
        assert [one.dataset for one in Weights.load(file).seen.chain] == ["digits", *(seen or [""])]

    def test_nodes_with_their_own_data_leave_it_unknown(self, tmp_path):
        """Nobody can compare the start with images that the nodes alone have."""
        start = self.start(tmp_path / "start.safetensors", "cifar100")
        own = ["partition.scheme=own", "engine.name=flower"]
        answers = []
        for recipe in (RECIPE, f'{RECIPE}, start="{start}"'):
            chosen = config(*own, recipe=recipe)
            answers.append(seen_by_generator(chosen, load_data(chosen)))
        assert answers == ["clean", "unknown"]

    def test_its_weights_are_where_training_begins(self, tmp_path):
        """With a learning rate of almost nothing, the result is the start."""
        start = self.start(tmp_path / "start.safetensors", "cifar100")
        execute(config(recipe=f'{RECIPE}, start="{start}", lr=1e-12, messages=fp32'), RunStore(tmp_path))
        [trained] = trained_in(tmp_path).values()
        assert same(trained, load_file(start))
