"""``fedeas generator``: train class-conditional generators, and measure the quality of their images."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table

from fedeas.calls.running import config_from, with_settings
from fedeas.cli.display import foreign_text, output
from fedeas.cli.options import DataRoot, Device, Strict
from fedeas.cli.progress import announce, every, progress, steps_shown
from fedeas.core.deadline import Deadline, duration
from fedeas.core.errors import FedEASError, InputError
from fedeas.core.files import make_folder, write_bytes
from fedeas.core.foreign_text import printable
from fedeas.core.provenance import ALL_PARTS, Seen, data_digest, refuse_unknown
from fedeas.core.records import Record, read_record, write_record
from fedeas.core.weight_files import GENERATOR, folder_for_new, generator_weights, name_of_dataset

if TYPE_CHECKING:
    from fedeas.config.run import RunConfig
    from fedeas.generators.quality.metrics import Report


generator = typer.Typer(
    name="generator", no_args_is_help=True, help="Train class-conditional generators and judge their images."
)

Dataset = Annotated[str, typer.Argument(help="digits, cifar10, cifar100, fashion-mnist, hub:, folder:, npz:.")]
SHORT_FOR_COLOURS = "little time for colour images: compare the result with generator=gaussian (fedeas generator check)"
QUICK_PRESETS = ("digits", "quick")
CHECKED = {
    "class agreement of {images:,} images": "{agreement:.1%} (real: {ceiling:.1%})",
    "classifier Frechet distance": "{classifier_frechet:.3f} (real: {classifier_frechet_floor:.3f})",
    "nearest training image, median": "{nearest[median]:.4f} (real: {nearest_of_test[median]:.4f})",
    "suspected and exact copies": "{suspected_copies:.1%} (real: about 1%), {copies}",
}
"""What `info` shows of the report of `check`: each measure beside that of real test images."""
TOO_LONG = 3600.0  # seconds of training on a CPU from which on another generator is recommended


@generator.command()
def train(
    dataset: Dataset,
    preset: Annotated[str, typer.Option(help="digits, quick, small, compact or paper; else one that suits.")] = "",
    out: Annotated[Path | None, typer.Option(help="Folder; weights/DATASET-PRESET by default.")] = None,
    minutes: Annotated[float, typer.Option(min=0.0, help="Stop after this long; 0 for no limit.")] = 0.0,
    updates: Annotated[int, typer.Option(min=0, help="Updates in all; 0 for the preset's number.")] = 0,
    protocol: Annotated[
        str, typer.Option(help="clean: the official training part. merged: the test part too.")
    ] = "clean",
    grid_minutes: Annotated[float, typer.Option(min=0.0, help="Minutes between sample grids; 0 for none.")] = 5.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights and random streams.")] = 0,
    device: Device = "auto",
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help="Compile the network first.")] = False,
    start: Annotated[Path | None, typer.Option(help="Initial weights instead of random ones.")] = None,
    federated: Annotated[
        Path | None, typer.Option(help="Config whose clients train the generator together; it has the recipe.")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Runs that will use the federated generator.")] = Path("runs"),
    strict: Strict = False,
    data_root: DataRoot = None,
) -> None:
    """Train a diffusion model; an interrupted training is resumed."""
    if federated is not None:
        if preset or updates or seed or compiled or start is not None:
            raise InputError("--federated: the config has the recipe; set preset, start and seed in its generator")
        chosen = _config_for(federated, dataset, data_root, engine={"device": device})
        file = _trained_by_clients(chosen, runs, minutes, strict)
        if file is None:
            print("stopped at the time limit; the same command continues", file=sys.stderr)
            return
        folder = out or folder_for_new() / f"{name_of_dataset(dataset)}-federated"
        make_folder(folder)
        write_bytes(folder / GENERATOR, file.read_bytes())
        print(f"{folder / GENERATOR}: trained by the clients of {federated}")
        return
    from fedeas.core.devices import chosen_device, device_name
    from fedeas.data.sources import load_dataset
    from fedeas.generators.diffusion import presets, training
    from fedeas.generators.diffusion.sampling import DiffusionGenerator
    from fedeas.generators.diffusion.trainer import Trainer
    from fedeas.generators.diffusion.weights import Weights
    from fedeas.generators.quality.grid import sample_grid

    data, where = load_dataset(dataset, data_root), chosen_device(device)
    preset = preset or presets.suited_preset(data.shape, where)
    begin = None if start is None else Weights.load(start)
    if strict and begin is not None:
        refuse_unknown(start, data.name, begin.seen.answer(data.parts))
    folder = out or folder_for_new() / f"{name_of_dataset(dataset)}-{preset}"
    trainer = Trainer(
        *data.seen_under(protocol), data.classes, presets.preset(preset), updates=updates, seed=seed, device=where,
        compiled=compiled, start=begin,
    )  # fmt: skip
    seen = {"dataset": data.name, "protocol": protocol, "preset": preset, "device": device_name(trainer.device)}
    on_cpu = trainer.device.type == "cpu"
    if on_cpu:
        _say_how_long(trainer.forecast(), trainer.updates, 60 * minutes, preset)
        if preset == "quick" and data.shape[0] > 1:
            print(SHORT_FOR_COLOURS, file=sys.stderr, flush=True)
    grid, is_due = folder / "grid.png", every(60 * grid_minutes)

    def draw(weights: Weights) -> None:
        if grid_minutes and (is_due() or not grid.exists()):
            sample_grid(DiffusionGenerator(weights, device=trainer.device, batch_size=100), weights.class_names, grid)

    with steps_shown("updates", Console(), transient=False, announced=on_cpu) as tell:
        weights = training.train(
            trainer, folder, minutes=minutes or float("inf"), provenance=seen, on_save=draw,
            on_look=lambda now: tell(now.update, now.updates, f", loss {now.loss:.4f}"),
        )  # fmt: skip
    print(f"{folder / GENERATOR}: {weights.provenance['images']:,} images seen")


def _config_for(path: Path, dataset: str, data_root: Path | None, **settings: Any) -> RunConfig:
    """The config in a file, for this dataset."""
    data = {"dataset": dataset, **({"root": str(data_root)} if data_root else {})}
    return with_settings(config_from(path), {"data": data, **settings})


def _trained_by_clients(config: RunConfig, runs: Path, minutes: float, strict: bool) -> Path | None:
    """Let the clients of a config train its generator, and return its weights; None if the time is over first."""
    from fedeas.federation.clients import train_generator
    from fedeas.federation.parts import refuse_unknown_ancestors

    if strict:
        refuse_unknown_ancestors(config)
    pause = Deadline(minutes) if minutes else None
    with progress(config) as show:

        def on_round(record: Record, of: int) -> bool:
            show.on_stage(record, of)
            return pause is not None and pause(record)

        return train_generator(config, runs, on_round)


def _say_how_long(seconds: float, updates: int, limit: float, preset: str) -> None:
    """Say how long a training on a CPU will take, if that is over a minute, and what to do if it is hours."""
    within = f", of which --minutes allows {duration(limit)}" if 0 < limit < seconds else ""
    announce(seconds, f"for {updates:,} updates on this CPU{within}")
    if seconds >= TOO_LONG:
        quicker = "" if preset in QUICK_PRESETS else "--preset quick, "
        advice = f"too long for a CPU: use {quicker}a GPU, or generator=gaussian, which needs no training"
        print(advice, file=sys.stderr, flush=True)


@generator.command()
def fit(
    dataset: Dataset,
    out: Annotated[Path, typer.Option(help="File for the generator.")] = Path("gaussian.safetensors"),
    components: Annotated[int, typer.Option(min=1, help="Directions of largest variance that are kept.")] = 32,
    data_root: DataRoot = None,
) -> None:
    """Fit the Gaussian generator to the training part of a dataset and write it to a file."""
    from fedeas.data.sources import load_dataset
    from fedeas.generators.gaussian import GaussianGenerator

    data = load_dataset(dataset, data_root)
    made = GaussianGenerator.fit(data.images, data.labels, data.num_classes, components, class_names=data.classes)
    make_folder(out.absolute().parent)
    made.save(out, Seen.under("clean", data.name, data_digest(data.images, data.labels)))
    print(f"{out}: use it as gaussian(weights={json.dumps(str(out))})")


@generator.command()
def check(
    spec: Annotated[str, typer.Argument(help="A generator as in a config, such as 'diffusion(weights=\"FILE\")'.")],
    dataset: Dataset,
    beside: Annotated[str, typer.Option(help="A second generator, shown side by side.")] = "",
    per_class: Annotated[int, typer.Option(min=1, help="Images drawn of each class.")] = 500,
    classifier: Annotated[Path | None, typer.Option(help="Classifier file; trained and saved if missing.")] = None,
    members: Annotated[int, typer.Option(min=2, help="Training and test images for the membership attack.")] = 2000,
    clients: Annotated[Path | None, typer.Option(help="Config of a run: attack the images of each client.")] = None,
    reference: Annotated[str, typer.Option(help="Weights that have not seen these images; the attack gains.")] = "",
    out: Annotated[Path | None, typer.Option(help="Folder for report.json and grid.png.")] = None,
    device: Device = "auto",
    data_root: DataRoot = None,
) -> None:
    """Measure a generator: class agreement, Frechet distance, nearness to training images, what its weights reveal."""
    from fedeas.core.devices import chosen_device
    from fedeas.data.sources import load_dataset
    from fedeas.federation.split import refuse_own_data, split_data
    from fedeas.generators.diffusion.weights import Weights
    from fedeas.generators.kinds import GeneratorContext, parse_generator
    from fedeas.generators.quality.classifier import Classifier
    from fedeas.generators.quality.grid import sample_grid
    from fedeas.generators.quality.membership import Candidates, attack
    from fedeas.generators.quality.metrics import Yardstick, measure_generator

    data, place = load_dataset(dataset, data_root), chosen_device(device)
    sources = [parse_generator(each) for each in (spec, beside) if each]
    context = GeneratorContext(data.name, data.images, data.labels, data.classes, "any", str(place))
    made = [source.ready(context) for source in sources]
    trained, others = (data.images, data.labels), (data.test_images, data.test_labels)
    if clients is None:
        candidates = Candidates.drawn(trained, others, members)
    else:
        config = _config_for(clients, data.name, data_root)
        refuse_own_data(config, "nobody else has the clients' images")
        split = split_data(config, data)
        parts, names = split.partition.indices, split.partition.clients or range(split.partition.num_clients)
        trained, others = (split.images, split.labels), (split.test_images, split.test_labels)
        candidates = Candidates.drawn(trained, others, members, parts, names)
    known = classifier if classifier is not None and classifier.exists() else None
    unseen = Weights.load(reference) if reference else None
    attacks = [attack(each, candidates, data.name, unseen) for each in made]
    if known:
        judge = Classifier.load(known, str(place))
    else:  # it knows its accuracy on the test part
        seen = Seen.under("clean", data.name, data_digest(data.images, data.labels))
        judge = Classifier.train(
            data.images, data.labels, data.num_classes, device=str(place), class_names=data.classes, seen=seen,
            architecture="small-cnn" if place.type == "cpu" else "",  # judges in minutes, as in a run
        ).measured(data.test_images, data.test_labels)  # fmt: skip
        if classifier is not None:
            make_folder(classifier.parent)
            judge.save(classifier)
    yardstick = Yardstick.of(judge, data.images, data.test_images, data.test_labels)
    reports = [
        replace(measure_generator(each, yardstick, per_class), membership=attacked)
        for each, attacked in zip(made, attacks, strict=True)
    ]
    heads = [source.spec for source in sources] if beside else ["generated"]
    output().print(_check_table(reports, heads, data.classes))
    if out is not None:
        make_folder(out)
        found = [{"spec": source.spec, **report.as_dict()} for source, report in zip(sources, reports, strict=True)]
        about = {"dataset": data.name, "reference": reference, "beside": found[1:]}
        write_record(out / "report.json", {**found[0], **about})
        sample_grid(made[0], data.classes, out / "grid.png")
        print(f"{out / 'report.json'}, {out / 'grid.png'}")


def _check_table(reports: Sequence[Report], heads: Sequence[str], classes: Sequence[str]) -> Table:
    """The measures of generators side by side, with those of real test images."""
    table = Table(
        "measure",
        *(Column(foreign_text(head)) for head in heads),
        "real test images",
        title=f"{reports[0].images:,} images",
    )
    found = [{name: (value, real) for name, value, real in report.rows(classes)} for report in reports]
    for name in dict.fromkeys(name for rows in found for name in rows):
        values, real = zip(*(rows.get(name, ("", "")) for rows in found), strict=True)
        table.add_row(*map(foreign_text, (name, *values, max(real))))
    table.add_section()
    shares = [*(report.agreement_per_class for report in reports), reports[0].ceiling_per_class]
    for name, *own in zip(classes, *shares, strict=True):
        cells = ("" if share is None else f"{share:.1%}" for share in own)
        table.add_row(foreign_text(f"agreement: {name}"), *cells)
    return table


@generator.command()
def info(
    weights: Annotated[str, typer.Argument(help="A generator.safetensors, or the name of one that is known.")],
    dataset: Annotated[str, typer.Option("--for", help="Also show what it has seen of this dataset.")] = "",
    device: Device = "auto",
    data_root: DataRoot = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print as Markdown.")] = False,
) -> None:
    """Show a generator, its training data, and the result of its check, if NAME.report.json is beside it."""
    from fedeas.generators.diffusion.weights import Weights

    path = generator_weights(weights)
    made = Weights.load(path)
    about, count = made.provenance, sum(tensor.numel() for tensor in made.tensors.values())
    rows = [
        ("file", f"{path.name}, {path.stat().st_size / 1e6:.1f} MB, float16"),
        ("fingerprint", made.fingerprint[:16]),
        ("network", f"UNet2DModel of widths {made.network.widths}, {count:,} parameters"),
        ("images", f"{made.num_classes} classes of {' x '.join(map(str, made.shape))}"),
        ("trained on", str(made.seen)),
        ("training", f"{about.get('minutes')} minutes on {about.get('device')}, preset {about.get('preset')}"),
    ]
    if together := about.get("federated"):
        sent = ", ".join(f"{size / 1e6:,.1f} MB {way}" for way, size in together.get("bytes", {}).items())
        rows.append(("trained by", f"{together.get('clients')} clients; each on average {sent}"))
    rows.append(("images seen", f"{about.get('images', 0):,} in {about.get('updates', 0):,} updates"))
    rows.append(("sampler", f"{made.solver}, {made.steps} steps, guidance {made.guidance:g}"))
    checked = path.with_suffix(".report.json")
    if checked.exists():
        report = read_record(checked)
        rows += [(name.format_map(report), value.format_map(report)) for name, value in CHECKED.items()]
    if dataset:
        from fedeas.core.devices import chosen_device
        from fedeas.data.sources import load_dataset
        from fedeas.generators.quality.metrics import near_duplicates

        data, place = load_dataset(dataset, data_root), chosen_device(device)
        rows += [(f"{part} part of {data.name}", made.seen.answer(data.parts, (part,)).value) for part in ALL_PARTS]
        for one in {(each.dataset, each.parts): each for each in made.seen.chain}.values():
            try:
                other = data if one.dataset == data.name else load_dataset(one.dataset, data_root)
                images, _ = other.seen_under("merged" if "test" in one.parts else "clean")
                found, turned = near_duplicates(data.test_images, images, place)
                said = f"{found:,} of {len(data.test_images):,} test images ({turned:,} if turned by 180 degrees)"
            except FedEASError as error:
                said = f"not counted: {error}"
            rows.append((f"near-duplicates of {replace(one, start=None)}", said))
    if as_markdown:
        lines = (f"| {printable(name)} | {printable(value)} |" for name, value in rows)
        print("\n".join(["| | |", "|---|---|", *lines]))
        return
    table = Table(show_header=False)
    for row in rows:
        table.add_row(*map(foreign_text, row))
    output().print(table)
