"""Label counts by the name that a user gives: a table, a saved split, or a dataset that comes with clients.

A plan for such clients becomes the config of a run on them.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedeas.config.reading import checked_config
from fedeas.config.run import RunConfig
from fedeas.core.errors import InputError
from fedeas.core.records import array_names, checked_file
from fedeas.data.names import is_place
from fedeas.data.npz import NPZ_NAMES
from fedeas.data.partition import Partition
from fedeas.federation.split import split_of
from fedeas.planning.columns import ColumnNames
from fedeas.planning.counts import LabelCounts
from fedeas.planning.policies import Policy, Pool

NEEDS_IMAGES = "a run needs images, not counts alone; plan folder:DIR or a split (.npz) of `fedeas partition`"


@dataclass(frozen=True, eq=False)
class CountSource:
    """Label counts, and how a command or a run gets the same counts."""

    title: str
    counts: LabelCounts
    arguments: str = "counts.csv"
    """The arguments of ``fedeas plan`` that name the table."""
    made_by: str = ""
    """The command that writes the table, if there is one."""
    config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Sections of the config of a run on the same clients; empty if a run cannot have them."""
    how: str = ""
    """How the file was read."""


def own_clients(name: str) -> CountSource | None:
    """The clients of a dataset such as ``folder:DIR`` or of a saved split (.npz); None for a table of counts."""
    if is_place(name):
        sections = {"data": {"dataset": name}, "partition": {"scheme": "natural"}}
        split = split_of(checked_config(sections), needs_indices=True)
        return CountSource(name, split.counts, name, config=sections, how="; ".join(["its clients", *split.notes]))
    return saved_split(Path(name), name) if name.endswith(".npz") else None


def saved_split(path: Path, name: str) -> CountSource:
    """The clients of a split that ``fedeas partition --out`` wrote; a run can have them.

    A dataset, which has the same ending as a split, is refused.
    """
    images, *_ = NPZ_NAMES
    if checked_file(path) and any(key in images for key in array_names(path, "make it with `fedeas partition`")):
        raise InputError(
            f"{path}: holds images, not a split; "
            f"make one with `fedeas partition npz:{path} --out split.npz` and plan split.npz"
        )
    split = Partition.load(path)
    dataset = split.recipe.get("dataset")
    config = {"data": {"dataset": dataset}, "partition": {"scheme": "file", "file": name}} if dataset else {}
    return CountSource(name, split.counts, plan_arguments(name), config=config, how="a saved split")


def plan_arguments(name: str, num_classes: int | None = None, columns: ColumnNames | None = None) -> str:
    """The arguments of ``fedeas plan`` that read the same file in the same way."""
    file = f"./{name}" if name.startswith("-") else name  # so that the name is not read as an option
    options = {"--classes": num_classes} | {
        f"--{key}-column": value for key, value in vars(columns or ColumnNames()).items()
    }
    given = [part for option, value in options.items() if value for part in (option, str(value))]
    return " ".join(map(shlex.quote, [file, *given]))


def run_config(source: CountSource, policy: Policy) -> str:
    """TOML for ``fedeas run``: this policy on these clients; refuse clients that a run cannot have."""
    if not source.config:
        raise InputError(NEEDS_IMAGES)
    shared = {"generator": "shared(of=gaussian)"} if isinstance(policy, Pool) else {}
    content: dict[str, Any] = {"label": "planned", "policy": policy.spec, **shared, **source.config}
    RunConfig.model_validate(content)
    lines = ["# Planned with FedEAS for these clients. Everything else is at its default: fedeas run FILE --dry-run"]
    for key, value in content.items():
        if isinstance(value, str):
            lines.append(f"{key} = {json.dumps(value)}")
        else:
            lines += ["", f"[{key}]", *(f"{name} = {json.dumps(each)}" for name, each in value.items())]
    return "\n".join(lines) + "\n"
