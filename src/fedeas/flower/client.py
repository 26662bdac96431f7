"""One client of a distributed federation: its own data, its own plan, and its files.

This module does not depend on how messages are sent. Every message may be handled by a new `Participant`, in another
process.
"""

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from fedeas.algorithms import FedAvg, Reply, parse_algorithm
from fedeas.algorithms.base import Arrays
from fedeas.config.generators import with_weights
from fedeas.config.run import OWN, RunConfig
from fedeas.core.arrays import IntArray, json_digest
from fedeas.core.devices import chosen_device
from fedeas.core.errors import FedEASError, InputError, log
from fedeas.core.files import make_folder, write_bytes
from fedeas.core.records import read_arrays, read_record, write_arrays, write_record
from fedeas.core.spec import installed, own_code_in
from fedeas.core.weight_files import GENERATOR
from fedeas.data.client import ClientData, Normaliser
from fedeas.data.dataset import Dataset
from fedeas.data.sources import as_in_run, load_dataset, load_own, misleading_label
from fedeas.federation.checkpoint import load_checkpoint, save_checkpoint
from fedeas.federation.clients import ready_generator
from fedeas.federation.engines.base import Task
from fedeas.federation.gaussian_sums import GaussianSums
from fedeas.federation.generator_rounds import DiffusionRounds
from fedeas.federation.parts import new_model, own_code_of
from fedeas.federation.split import FederatedData, split_data
from fedeas.federation.worker import Worker
from fedeas.flower.node_settings import NodeSettings, TellableError
from fedeas.flower.privacy import Disclosures, PrivacyLedger, check_fits, protect, with_noise
from fedeas.flower.revealed_counts import Share, numbers_of, own_row
from fedeas.flower.wire import About
from fedeas.generators.base import plan_addresses
from fedeas.generators.diffusion.presets import Preset, preset_from
from fedeas.generators.kinds import Federated, Gaussian, content_digest, federated_in, parse_generator
from fedeas.planning.policies import parse_policy
from fedeas.planning.policies.base import Needs

SIMULATED = "FEDEAS_SIMULATED"
"""Environment variable: set in the processes of a simulation, where server and nodes belong to one user.

No message can set it, so that a server cannot claim it for a node.
"""

PLAN = "plan.json"
BRING_IT = "bring it there and set generator-file in the node's config"
REMEDY = "remove it to have it made again"
THAT_CAN = "use one that comes as a file, such as gaussian(weights=FILE) or diffusion(weights=FILE)"
"""Generators for clients that lack classes."""


class Participant:
    """A client of a run, with its id and the settings of its node."""

    def __init__(self, config: RunConfig, client: int, about: About, node: NodeSettings) -> None:
        clients, here = config.partition.clients, "in its node's config"
        if not 0 <= client < clients:
            raise TellableError(f"partition-id {client} {here}: the run's clients are 0 to {clients - 1}")
        if node.clients not in (None, clients):
            raise TellableError(f"num-partitions {node.clients} {here}: the run has {clients} clients")
        refuse_foreign_code(config, own_generator=bool(node.generator), own_data=bool(node.data))
        self.client, self.about, self.node, self.run = client, about, node, config
        self.fingerprint = config.fingerprint
        self.folder = node.state / self.fingerprint[:16] / f"client-{client}"
        self.policy, self.algorithm = parse_policy(config.policy), parse_algorithm(config.algorithm)
        try:
            self.device = chosen_device(node.device, "the node's device")
        except InputError as error:
            raise TellableError(str(error)) from None
        if config.partition.scheme == OWN and not node.data:
            raise TellableError(f"clients of this run bring their own data; set data {here}")
        agreed, asked = node.policies, self.policy.spec
        if node.data and not agreed:
            remedy = f"its owner can agree with policies = {asked!r} in the node's config"
            raise TellableError(f"its node has its own data and names no policies; {remedy}")
        if agreed and asked not in agreed:
            raise TellableError(f"its node agreed to {'; '.join(agreed)}, and not to {asked}")
        self.disclosures, self.ledger = Disclosures(node.state, client), PrivacyLedger(node.state, client)
        chosen = node.generator or config.generator
        if config.generates and node.generator_file:
            try:
                chosen = with_weights(config.generator, node.generator_file)
            except FedEASError as error:
                raise TellableError(f"generator-file {here}: {error}") from None
        data = config.data.model_copy(update={"root": node.data_root or config.data.root})
        model = config.model.model_copy(update={"weights": ""})  # initial weights come in messages
        self.config = config.model_copy(update={"data": data, "model": model, "generator": chosen})

    # ---- before the first round

    def begin_anew(self) -> None:
        """Remove the files of an earlier run with this config."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def introduce(self) -> dict[str, Any]:
        """The client id, the size N_k, and what the policy needs from it: nothing, two numbers, or the counts."""
        if self.config.generates:
            self._check_generator()
        known = self.about.classes
        if self.node.data and not self.dataset.has_class_names and (label := misleading_label(known)) is not None:
            log.warning(
                "%s: has no names of classes; label %d is class %s, because the run's order is %s; add the names if "
                "you mean others", self.node.data, label, known[label], ", ".join(known),
            )  # fmt: skip
        if self.node.privacy:
            check_fits(self.algorithm, self.model)
            self.ledger.check(self.node.privacy, self.config.rounds.total)
        about: dict[str, Any] = {"client": self.client, "size": len(self.labels)}
        about |= {"own_data": bool(self.node.data), "own_generator": bool(self.node.generator)}
        if self.node.privacy:
            about["privacy"] = asdict(self.node.privacy)
        if self.policy.needs is Needs.NUMBERS:
            told = asdict(numbers_of(self.policy, self.counts))
            self.disclosures.note(self.fingerprint, "numbers", {}, self.policy.spec, told)
            about |= told
        if self.policy.needs is Needs.COUNTS:
            self._check_sharing(f"policy {self.policy}")
            about["counts"] = self.counts.tolist()
        return about

    def _check_generator(self) -> None:
        """Refuse a generator that differs from the run's, or that needs images of classes that may be absent.

        What the server is told does not depend on the labels: for own data, every fitted generator is refused that the
        node's owner has not chosen.
        """
        generator, own = self.config.generator, self.node.generator
        if federated_in(self.run.generator) is not None:
            self._generator_training()
        if federated_in(generator) is not None:
            return
        if not own:
            self._check_generator_file()
        settings = parse_generator(generator)
        if self.node.data and settings.is_fitted and not own:
            lacks = "would be fitted to this node's own data, which may lack classes"
            raise TellableError(f"generator {generator} {lacks}; {THAT_CAN}")
        if self.node.data and settings.is_fitted and not self.counts.all():
            raise InputError(f"generator {generator} needs images of every class, and this node lacks some; {THAT_CAN}")
        with self._kept_here("its generator's file cannot make the run's classes and images; choose one made for them"):
            settings.check_fits(self.config.data.dataset, self.about.classes, self.about.shape)

    def _check_generator_file(self) -> None:
        """Compare the generator's digest with the one that the run was started with."""
        with self._kept_here(f"the file of the run's generator is not on its node; {BRING_IT}"):
            digest = content_digest(self.config.generator, self.config.data.dataset)
        self._check_content("generator", digest)

    @contextmanager
    def _kept_here(self, told: str) -> Iterator[None]:
        """Log an error that names a file, and tell the server what is wrong without that name."""
        try:
            yield
        except FedEASError as error:
            log.error("generator %s: %s", self.config.generator, error)
            raise TellableError(told) from None

    def settle(self, share: Share | None, row: IntArray | None) -> int:
        """Store this client's row of the plan, given by the server or computed here; return its total.

        It is computed once for each run, because its total says something about the label counts.
        """
        if row is None:
            asked = asdict(share) if share else {}
            self.disclosures.check(self.fingerprint, "plan", asked)
            row = own_row(self.policy, self.counts, share)
            self.disclosures.note(self.fingerprint, "plan", asked, self.policy.spec, {"total": int(row.sum())})
        parse_generator(self.config.generator).check_plan(row)
        make_folder(self.folder)
        write_record(self.folder / PLAN, {"row": row.tolist()})
        return int(row.sum())

    def _check_sharing(self, who: str) -> None:
        if not self.config.engine.share_counts:
            raise TellableError(
                f"{who} needs the clients' label counts; set engine.share_counts=true, or choose another"
            )
        if not self.node.share_counts:
            raise TellableError(f"its node does not share label counts, which {who} needs")

    # ---- its part of a round

    def work(self, task: Task, round: int, broadcast: Arrays, last: int, keep: int) -> Reply | None:
        """Do a task with the state after round `last`; keep the states from round `keep` on."""
        if task is Task.SETUP and self.algorithm.shares_counts:
            self._check_sharing(f"algorithm {self.config.algorithm}")
        broadcast, state = self._on_device(broadcast), {}
        if last >= 0 and (path := self._state_after(last)).exists():
            state = self._on_device(load_checkpoint(path, self.fingerprint).server)
        reply, state = self._worker(task).run(task, self.client, round, broadcast, state)
        if state and task is Task.TRAIN:
            make_folder(self.folder)
            save_checkpoint(self._state_after(round), self.fingerprint, round, state, {})
            for path in self.folder.glob("state-*.safetensors"):
                if int(path.stem.removeprefix("state-")) < keep:
                    path.unlink(missing_ok=True)
        if reply is None or task is not Task.TRAIN or not self.node.privacy:
            return reply
        arrays = protect(reply.arrays, broadcast, self.node.privacy)
        epsilon = self.ledger.spend(self.fingerprint, round, self.node.privacy)  # noted before the answer leaves
        metrics = {name: value for name, value in reply.metrics.items() if name != "loss"}
        return replace(reply, arrays=arrays, metrics={**metrics, "epsilon": epsilon})

    def _generator_training(self) -> tuple[Federated, GaussianSums | None]:
        """How the clients train their generator, and its sums if it has some; refused if the owner forbids it."""
        settings, of = federated_in(self.run.generator), None
        if settings is None:
            raise TellableError("the clients of this run train no generator")
        if isinstance(settings.of, Gaussian):
            of = GaussianSums(settings.of, self.about.shape, self.about.classes)
        if self.node.privacy and of is None:
            raise TellableError(
                "its node adds noise to its updates, and the clients of this run train a generator without any; "
                "choose a generator that comes as a file"
            )
        if of is not None and not self.node.privacy:
            self._check_sharing("a federated Gaussian generator")
        return settings, of

    def train_generator(self, round: int, broadcast: Arrays, recipe: Mapping[str, Any]) -> Reply | None:
        """The client's part of a round in which the clients train their generator; `recipe` are a preset's fields."""
        settings, sums = self._generator_training()
        algorithm: FedAvg
        if sums is not None:
            network: nn.Module = nn.Identity()
            noise = self.node.privacy
            algorithm = with_noise(sums, noise, self.ledger, self.fingerprint) if noise else sums
        else:
            preset, classes = preset_from(recipe), len(self.about.classes)
            algorithm = DiffusionRounds(settings, preset, classes, self.config.engine.compile)
            network = _shared_network(preset, self.about.shape, classes, str(self.device))
        worker = replace(
            self._worker(Task.SETUP), algorithm=algorithm, model=network, clients={self.client: self.real},
            seed=settings.seed, total_rounds=settings.rounds,
        )  # fmt: skip
        return worker.run(Task.TRAIN, self.client, round, self._on_device(broadcast), {})[0]

    def take_generator(self, content: Tensor) -> None:
        """Store the file of the generator that the clients have trained."""
        make_folder(self.folder)
        write_bytes(self.folder / GENERATOR, content.numpy().tobytes())

    def _on_device(self, arrays: Arrays) -> Arrays:
        return {name: tensor.to(self.device) for name, tensor in arrays.items()}

    def _worker(self, task: Task) -> Worker:
        """The same worker as in all engines, for this one client."""
        run, nothing = self.config, np.zeros((0, 0), dtype=np.int64)
        worker = Worker(
            self.algorithm, self.model, lambda client: self.real, nothing, None, run.train, run.seed, run.rounds.total,
            run.engine.precision,
        )  # fmt: skip
        if task is Task.TRAIN:
            start = time.perf_counter()
            worker.clients = {self.client: self.data}
            worker.generation_seconds = {self.client: time.perf_counter() - start}
        return worker

    @cached_property
    def model(self) -> nn.Module:
        """The model for training; its weights come in messages."""
        return _shared_network(self.config, self.about.shape, len(self.about.classes), str(self.device))

    def _state_after(self, round: int) -> Path:
        return self.folder / f"state-{round}.safetensors"

    # ---- its data

    @cached_property
    def dataset(self) -> Dataset:
        """The run's dataset, or the client's own with the run's classes."""
        if not self.node.data:
            return _shared_split(self.config).dataset
        own = load_own(self.node.data, self.node.data_root)
        return replace(as_in_run(own, self.about.classes, self.about.shape), name=self.config.data.dataset)

    @cached_property
    def samples(self) -> tuple[NDArray[np.uint8], IntArray]:
        """The client's real images and labels; its part of a shared dataset is stored in its own file."""
        if self.node.data:
            return self.dataset.images, self.dataset.labels
        place = self.config.data.root, self.config.data.dataset
        path = self.folder / f"samples-{_digest(*place)}.npz"
        if not path.exists():
            make_folder(self.folder)
            data = _shared_split(self.config)
            self._check_content("data", data.dataset.digest)
            self._check_content("partition", data.partition.digest)
            mine = data.partition.indices[self.client]
            write_arrays(path, images=data.images[mine], labels=data.labels[mine])
        images, labels = read_arrays(path, ("images", "labels"), REMEDY)
        return images, labels

    @property
    def labels(self) -> IntArray:
        """Labels of the real samples."""
        return self.samples[1]

    @property
    def counts(self) -> IntArray:
        """The client's label counts, a row with every class of the federation."""
        return np.bincount(self.labels, minlength=len(self.about.classes)).astype(np.int64)

    @cached_property
    def real(self) -> ClientData:
        """The real samples."""
        normalise = Normaliser.of(self.about.mean, self.about.std, self.device)
        return ClientData.of(*self.samples, normalise)

    @cached_property
    def data(self) -> ClientData:
        """Real and synthetic samples; synthetic ones are generated once and then read from disk."""
        plan, remedy = self.folder / PLAN, "start the run from the beginning"
        if not plan.exists():
            raise TellableError(f"there is no plan here; {remedy}")
        row = np.array(read_record(plan, remedy)["row"], dtype=np.int64)
        if not row.any():
            return self.real
        labels, index = plan_addresses(self.client, row)
        path = self.folder / f"synthetic-{_digest(self.config.generator, row.tolist())}.npz"
        if not path.exists():
            write_arrays(path, images=self._generate(labels, index))
        (images,) = read_arrays(path, ("images",), REMEDY)
        return self.real.joined(images, labels)

    def _check_content(self, part: str, digest: str) -> None:
        """Refuse content that differs from the run's, on a node without its own data or generator."""
        if getattr(self.config.content, part) not in ("", digest):
            raise TellableError(f"its {part} differs from the run's; bring the same files to the node")

    def _generate(self, labels: IntArray, index: IntArray) -> NDArray[np.uint8]:
        trained = self.folder / GENERATOR if federated_in(self.config.generator) else None
        if trained is not None and not trained.exists():
            raise TellableError("the generator that the clients have trained is not here; start the run again")
        if trained is None and not self.node.generator:
            self._check_generator_file()
        bank = self.node.state / "bank"
        return ready_generator(self.config, self.dataset, self.device, bank, trained=trained).sample(labels, index)


@lru_cache(maxsize=1)
def _shared_split(config: RunConfig) -> FederatedData:
    """The run's dataset, split; the simulated clients of a process share it."""
    return split_data(config, load_dataset(config.data.dataset, config.data.root))


@lru_cache(maxsize=2)
def _shared_network(of: RunConfig | Preset, shape: tuple[int, int, int], classes: int, device: str) -> nn.Module:
    """The model of a run, or the network of a generator; the clients of a process train in it one after the other."""
    made = of.network.build(shape, classes) if isinstance(of, Preset) else new_model(of, shape, classes)
    return made.to(device)


def in_simulation() -> bool:
    """Whether this process is part of a simulation on one machine."""
    return bool(os.environ.get(SIMULATED))


def refuse_foreign_code(config: RunConfig, own_generator: bool = False, own_data: bool = False) -> None:
    """No node runs code that the server names, unless the node's owner has installed a package that registers it.

    A generator and a dataset may also be named in the node's config; what the run names does not matter then. In a
    simulation all code is the user's own.
    """
    if in_simulation():
        return
    named = own_code_of(config)
    named |= {} if own_generator else {"generator": own_code_in(config.generator)}
    named |= {} if own_data else {"dataset": own_code_in(config.data.dataset)}
    for kind, names in named.items():
        may_be_named = kind in ("generator", "dataset")
        remedy = "name it in the node's config" if may_be_named else "install it as a package on the node"
        for own in names:
            if own not in installed(kind).values():
                raise TellableError(f"{own} would run code of the server's choice; {remedy}")


def _digest(*content: object) -> str:
    return json_digest(content)[:16]
