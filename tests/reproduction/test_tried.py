"""Runs with parts that are gone: they are all there, keep their fingerprints, and still count as comparisons."""

import pytest

from fedeas.runs import read_runs
from reproduction.findings import EXPERIMENTS, findings_of
from reproduction.reproduction import RESULTS
from reproduction.results import Results
from reproduction.studies import beyond_study
from reproduction.tried import PARTS, SERVER, tried_markdown, tried_runs


def test_each_listed_run_is_kept_with_its_old_fingerprint():
    kept = {run.config.fingerprint: run for run in read_runs(RESULTS / "tried.parquet")}
    assert kept.keys() == {run.fingerprint for run in tried_runs()}
    assert all(int(run.seed) == kept[run.fingerprint].config.seed for run in tried_runs())


def test_the_page_says_of_every_part_what_it_brought():
    page = tried_markdown(Results([RESULTS]))
    for part in PARTS:
        section = page.partition(f"## {part}\n")[2].partition("\n## ")[0]
        assert PARTS[part] in section
        assert section.count("\n|") > 2


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=" ".join)
def test_comparisons_with_removed_parts_still_widen_the_intervals(experiment):
    chosen = beyond_study(*experiment)
    made = {(run.setting, run.betas) for run in tried_runs() if run[1:4] == (SERVER, *experiment)}
    for where, found in zip(chosen.beyond, findings_of(chosen, Results([])), strict=True):
        assert found.tried == sum(setting == where.id for setting, _ in made)
