"""The tables of a study: each is built once, from one scan of the finished runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from fedeas.config import RunConfig
from reproduction.artefacts import Artefact
from reproduction.results import Results
from reproduction.studies import Study, with_seeds
from reproduction.table_spec import Sheet
from reproduction.tables import Filled, fill


@dataclass(frozen=True)
class Workbook:
    """A study and the finished runs that fill its tables.

    A table is filled when it is first requested and does not change afterwards: request it after the runs.

    Attributes:
        only: pattern of labels, as of file names; runs with other labels are not needed.
    """

    study: Study
    results: Results
    only: str = "*"
    _filled: dict[str, Filled] = field(default_factory=dict)

    def table(self, sheet: Callable[[Study], Sheet]) -> Filled:
        """One table, filled."""
        return self._fill(sheet(self.study))

    def tables(self, artefacts: Sequence[Artefact]) -> list[Filled]:
        """The filled tables of these artefacts; a table that several share comes once."""
        sheets = {sheet.title: sheet for artefact in artefacts for sheet in artefact.sheets(self.study)}
        return [self._fill(sheet) for sheet in sheets.values()]

    def configs(self, artefacts: Sequence[Artefact], seeds: int) -> list[RunConfig]:
        """The runs that these artefacts need, each once."""
        chosen = [run for each in artefacts for run in each.configs(self.study) if fnmatchcase(run.label, self.only)]
        needed = [run for config in chosen for run in with_seeds(config, seeds)]
        return list({config.fingerprint: config for config in needed}.values())

    def missing(self, configs: Sequence[RunConfig]) -> list[RunConfig]:
        """The runs that are not finished."""
        return [config for config in configs if not self.results.has(config)]

    def _fill(self, sheet: Sheet) -> Filled:
        if sheet.title not in self._filled:
            self._filled[sheet.title] = fill(sheet, self.results)
        return self._filled[sheet.title]
