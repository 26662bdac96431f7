"""The report: the content of the page, and that it needs no other files."""

import json
import re
from html.parser import HTMLParser
from statistics import mean, stdev

import numpy as np
import pytest
from scipy import stats

from fedeas import Allocation, InputError, LabelCounts
from fedeas.config import ModelConfig, RoundsConfig, RunConfig, TrainConfig
from fedeas.planning import scores
from fedeas.runs import pack_runs, read_runs
from fedeas.runs.store import RunStore
from fedeas.views.methods import client_accuracy
from fedeas.views.report import report as write_report

COUNTS = LabelCounts([[30, 2], [4, 25], [9, 9]])
TOTALS = {"no-generation": 0, "full-balance": 49}  # any other policy of these tests has the budget
BUDGET = 12
LEVELS = {"no-generation": 0.60, "uniform": 0.70, "missing-only": 0.74, "fedeas": 0.79, "full-balance": 0.83}
METHOD, SEEDS, ACCURACY, DIFFERENCE = range(4)  # columns of the first table
GENERATED, REMOVED, ROUNDS, GAMMA, ETA, STEPS, IMAGES, GENERATION, TRAINING = range(1, 10)  # and of the second
FAIRNESS = "Accuracy by class and by client, mean ± deviation over seeds"
ACCURACIES, WORK = "Accuracy, mean ± deviation over seeds", "Work and other measures, averaged over seeds"
NOT_TEXT = ("style", "script")
VOID = {"meta", "img", "link", "input", "br", "hr"}


class Page(HTMLParser):
    """Tags, tables by caption, and the text of some elements."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.tables, self.texts = [], [], {}, []
        self.feed(text)
        self.close()
        assert not self.open, "an element is left open"

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "table":
            self.rows, self.caption = [], ""

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag == "table":
            self.tables[self.caption] = self.rows

    def handle_data(self, data):
        if "caption" in self.open:
            self.caption += data
        elif "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += (" " if self.open[-1] == "small" else "") + data
        self.texts.append((self.open[-1] if self.open else "", data))

    def text(self, tag=None):
        return "".join(data for inside, data in self.texts if tag in (None, inside) and inside not in NOT_TEXT)

    def result(self, caption=ACCURACIES):
        return {row[METHOD]: row for row in self.tables[caption][1:]}

    def lead(self):
        return self.text().partition("Result")[2].partition(ACCURACIES)[0]

    def charts(self):
        """The figures of Plotly, in order."""
        texts = [data for inside, data in self.texts if inside == "script"]
        return [json.loads(text) for text in texts if text.startswith('{"data"')]


def traces_of(chart, dash=None):
    return [trace for trace in chart["data"] if dash in (None, trace.get("line", {}).get("dash"))]


@pytest.fixture
def add(tmp_path):
    """Make a run directory: finished with this accuracy, or left after some rounds."""

    def make(label, policy, seed=0, accuracy=0.8, *, rounds=4, unfinished=False, classes=None, **more):
        names = ("reached", "gamma", "seconds", "generated", "final", "steps", "samples", "window", "seen")
        facts = {name: more.pop(name) for name in names if name in more}
        given = {"label": label, "policy": policy, "seed": seed, "rounds": RoundsConfig(total=4, threshold=0.75)}
        run = RunStore(tmp_path / "runs").open(RunConfig(**(given | more)))
        total = TOTALS.get(policy, BUDGET)
        plan = Allocation([[0, total], [0, 0], [0, 0]])
        run.save_allocation(COUNTS, plan)
        for number in range(1, rounds + 1):
            by_class = {"class_accuracy": classes} if classes else {}
            record = {"round": number, "clients": [0], "accuracy": accuracy * number / 4, "generated": 0}
            run.append_round(record | by_class)
        if not unfinished:
            run.write_json("summary.json", _summary(total, plan, accuracy, **facts))
        return run

    return make


def _summary(total, plan, accuracy, reached=3, gamma=0.5, seconds=(1.0, 2.0), generated=None, **more):
    generate, train = seconds
    return {
        "accuracy": accuracy, "window": [4, 4], "final": accuracy, "peak": accuracy + 0.01, "steps": 7, "samples": None,
        "rounds_to_threshold": reached, "gamma_hat": gamma,
        "total": total, "generated": total if generated is None else generated,
        "imbalance_removed": scores.imbalance_removed(COUNTS, plan),
        "seconds": {"generate": generate, "train": train, "evaluate": 0.5, "total": generate + train + 0.5},
        **more,
    }  # fmt: skip


@pytest.fixture
def page(tmp_path):
    def write(*runs, title="FedEAS report", reference=None):
        write_report(runs, tmp_path / "report.html", title, reference)
        return Page((tmp_path / "report.html").read_text("utf-8"))

    return write


@pytest.fixture
def five(add):
    """Five policies, three of them at one budget, three seeds each."""
    specs = {"uniform": f"uniform(budget={BUDGET})", "missing-only": f"missing-only(budget={BUDGET})"}
    return [
        add(name, specs.get(name, name), seed, level + step)
        for name, level in LEVELS.items()
        for seed, step in enumerate((-0.01, 0.0, 0.025 - level / 100))
    ]


def test_the_page_loads_nothing_from_elsewhere(five, page, tmp_path):
    found = page(*five)
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "http:" not in text and "https:" not in text and "url(" not in text and "@import" not in text
    assert not {"link", "iframe", "object", "base"} & {tag for tag, _ in found.tags}
    linking = [value for _, attributes in found.tags for name, value in attributes.items() if name in ("src", "href")]
    assert all(value.startswith("data:image/") for value in linking)
    policy = next(each["content"] for tag, each in found.tags if each.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")
    assert len(text) < 3e6


def test_the_page_is_valid_html(five, page):
    found = page(*five, title="Digits")
    assert ("html", {"lang": "en"}) in found.tags
    assert found.text("h1") == found.text("title") == "Digits"
    assert [data for tag, data in found.texts if tag == "h2"] == [
        "Result", "Accuracy over rounds", "Accuracy against samples", "Where the samples go", "What was run",
    ]  # fmt: skip
    assert all(attributes["aria-label"] for _, attributes in found.tags if attributes.get("class") == "chart")
    assert all("scope" in attributes for tag, attributes in found.tags if tag == "th")


def test_the_same_runs_give_the_same_bytes(five, page, tmp_path):
    page(*five)
    before = (tmp_path / "report.html").read_bytes()
    page(*five)
    assert (tmp_path / "report.html").read_bytes() == before


def test_accuracies_are_mean_and_sample_deviation_over_seeds(add, page):
    values = [0.7123, 0.7541, 0.7012]
    runs = [add("ours", "fedeas", seed, value, final=value - 0.02) for seed, value in enumerate(values)]
    row = page(*runs).result()["ours"]
    percents = [100 * value for value in values]
    accuracy, final, peak = (f"{mean(percents) + more:.2f} ± {stdev(percents):.2f}" for more in (0, -2, 1))
    assert row[SEEDS:] == ["3", accuracy, final, peak]  # one method has no difference


def test_one_seed_has_no_spread_and_no_interval(add, page):
    found = page(add("ours", "fedeas", 0, 0.8), add("none", "no-generation", 0, 0.7))
    rows = found.result()
    assert rows["ours"][ACCURACY] == "80.00"
    assert rows["none"][DIFFERENCE] == "−10.00 one seed: no interval"
    assert not any("error_x" in trace for chart in found.charts() for trace in chart["data"])


def test_the_head_names_the_rounds_and_if_they_differ_each_cell_does(add, page):
    ours, longer = add("a", "fedeas", window=[19, 20]), add("b", "full-balance", window=[181, 200])
    assert page(ours).tables[ACCURACIES][0][ACCURACY] == "rounds 19-20, %"
    found = page(ours, longer)
    assert found.tables[ACCURACIES][0][ACCURACY] == "accuracy, %"
    assert [row[ACCURACY] for row in found.result().values()] == ["80.00 rounds 19-20", "80.00 rounds 181-200"]


def test_the_other_columns(add, page):
    base = add("none", "no-generation", 0, 0.60, gamma=None, seconds=(0.0, 3.0))
    work = {"generated": 10, "samples": 5000}
    ours = [add("ours", "fedeas", s, 0.72, gamma=0.4 + s / 5, seconds=(1.0 + s, 4.0), **work) for s in (0, 1)]
    rows = page(base, *ours).result(WORK)
    assert rows["none"][GENERATED:] == ["0", "0.0", "3", "-", "-", "7", "-", "0.0", "3.0"]
    removed = scores.imbalance_removed(COUNTS, Allocation([[0, BUDGET], [0, 0], [0, 0]]))
    eta = scores.accuracy_per_thousand(72 - 60, BUDGET)
    expected = [f"10 of {BUDGET} planned", f"{100 * removed:.1f}", "3", "0.500", f"{eta:,.2f}", "7", "5,000"]
    expected += ["1.5", "4.0"]
    assert rows["ours"][GENERATED:] == expected


def test_eta_needs_a_method_without_generation_that_is_otherwise_the_same(add, page):
    base = add("none", "no-generation", 0, 0.6)
    other = add("ours", "fedeas", 0, 0.7, train=TrainConfig(lr=0.5))
    assert page(base, other).result(WORK)["ours"][ETA] == "-"
    assert (
        page(base, add("same", "fedeas", 0, 0.7, generator="gaussian(components=5)")).result(WORK)["same"][ETA] != "-"
    )


@pytest.mark.parametrize(
    ("reached", "shown"),
    [
        ((3, 9, 5), "5"),
        ((2, 3), "2.5"),
        ((None, None, 2), "never"),
        ((None, 7, 2), "7 1 of 3 never"),
        ((None,), "never"),
    ],
)
def test_rounds_to_the_threshold_are_a_median(add, page, reached, shown):
    found = page(*(add("ours", "fedeas", seed, reached=each) for seed, each in enumerate(reached)))
    assert found.result(WORK)["ours"][ROUNDS] == shown
    assert found.tables[WORK][0][ROUNDS] == "rounds to 75 %"


def test_best_and_second_are_marked_at_one_budget_only(five, page):
    marks = {name: re.findall("best|second", row[ACCURACY]) for name, row in page(*five).result().items()}
    assert marks == {
        "no-generation": [],
        "uniform": [],
        "missing-only": ["second"],
        "fedeas": ["best"],
        "full-balance": [],
    }


def test_one_seed_marks_nothing(add, page):
    rows = page(add("a", "fedeas", 0, 0.7), add("b", f"uniform(budget={BUDGET})", 0, 0.2)).result()
    assert not any(re.findall("best|second", row[ACCURACY]) for row in rows.values())


def test_differences_are_to_fedeas_and_paired_by_seed(five, page):
    rows = page(*five).result()
    assert rows["fedeas"][DIFFERENCE] == "reference"
    number, *interval = re.findall(r"−?[\d.]+", rows["uniform"][DIFFERENCE])
    pairs = {name: [100 * run.summary()["accuracy"] for run in five if run.config.label == name] for name in LEVELS}
    expected = stats.ttest_rel(pairs["uniform"], pairs["fedeas"]).confidence_interval(0.95)
    shown = [float(text.replace("−", "-")) for text in (number, *interval[:2])]
    apart = mean(pairs["uniform"]) - mean(pairs["fedeas"])
    assert shown == pytest.approx([apart, expected.low, expected.high], abs=0.006)
    verdicts = {name: row[DIFFERENCE].split()[-1] for name, row in rows.items()}
    assert (verdicts["uniform"], verdicts["full-balance"]) == ("lower", "higher")


def references(found):
    return [name for name, row in found.result().items() if row[DIFFERENCE] == "reference"]


def test_the_reference_can_be_chosen_by_label_or_name_and_the_page_names_it(five, page):
    found = page(*five, reference="uniform")
    assert references(found) == ["uniform"]
    assert found.result()["fedeas"][DIFFERENCE].split()[-1] == "higher"
    assert "the reference, uniform;" in found.text("p")


def test_a_method_with_several_labels_is_chosen_by_any_of_them(add, page):
    runs = [add("s0", "full-balance", 0), add("s1", "full-balance", 1), add("ours", "fedeas", 0)]
    for called in ("s1", "full-balance + fedavg"):
        assert references(page(*runs, reference=called)) == ["full-balance + fedavg"]


def test_an_unknown_or_ambiguous_reference_is_answered_with_the_names(add, page):
    runs = [add("run", "fedeas"), add("run", "full-balance"), add("late", "uniform(budget=12)", unfinished=True)]
    for called in ("nobody", "run", "late"):
        with pytest.raises(InputError, match=re.escape("'fedeas(beta=12) + fedavg', 'full-balance + fedavg'")):
            page(*runs, reference=called)


@pytest.mark.parametrize("levels", [(0.7, 0.8), (0.8, 0.7)])
def test_the_reference_does_not_depend_on_accuracy(add, page, levels):
    mine, plain = levels
    base = add("base", "fedeas", 0, plain)
    for part in ({"algorithm": "fedprox"}, {"model": {"name": "python:mine:Net"}}):
        assert references(page(add("a", "fedeas", 0, mine, **part), base)) == ["base"]
    twins = [add("c", "full-balance", 0, mine), add("d", "full-balance", 0, plain, train=TrainConfig(lr=0.5))]
    assert references(page(*twins)) == ["c"]


@pytest.mark.parametrize(
    "ablation",
    [
        {"generator": "shared(of=gaussian)"},
        {"train": TrainConfig(loss="balanced-softmax")},
        {"train": TrainConfig(sampling="balanced")},
        {"policy": "fedeas(beta=2)", "model": ModelConfig(norm="group")},
    ],
)
def test_the_reference_is_the_fedeas_whose_settings_most_methods_share(add, page, ablation):
    variants = [add("a", **{"policy": "fedeas"} | ablation), add("b", **ablation | {"policy": "uniform(budget=12)"})]
    plain = [add("x", "uniform(budget=12)"), add("y", "missing-only(budget=12)"), add("z", "fedeas")]
    assert references(page(*variants, *plain)) == ["z"]


def test_without_fedeas_the_method_with_fewest_samples_is_the_reference(add, page):
    rows = page(add("even", f"uniform(budget={BUDGET})"), add("none", "no-generation")).result()
    assert rows["none"][DIFFERENCE] == "reference"
    assert rows["even"][DIFFERENCE].startswith("0.00")


def test_methods_on_other_data_have_their_own_reference(add, page):
    here = [add("a", "fedeas", 0, 0.8), add("b", "no-generation", 0, 0.7)]
    elsewhere = {"partition": {"clients": 7}}
    there = [add("c", "no-generation", 0, 0.3, **elsewhere), add("d", "fedeas", 0, 0.5, **elsewhere)]
    rows = page(*here, *there).result()
    assert [rows[name][DIFFERENCE] for name in "ad"] == ["reference", "reference"]
    assert rows["b"][DIFFERENCE].startswith("−10.00 minus a")
    assert rows["c"][DIFFERENCE].startswith("−20.00 minus d")


def test_methods_without_a_common_seed_are_not_compared(add, page):
    rows = page(add("a", "fedeas", 0, 0.8), add("b", "no-generation", 1, 0.7)).result()
    assert rows["b"][DIFFERENCE] == "- no seed in common"


def test_the_lead_concludes_from_intervals_alone(add, page):
    close = [add("a", "fedeas", seed, 0.70 + seed / 20) for seed in (0, 1, 2)]
    rival = [add("b", f"uniform(budget={BUDGET})", seed, 0.69 + seed / 20 + (seed == 1) / 20) for seed in (0, 1, 2)]
    base = [add("none", "no-generation", seed, 0.88 + seed / 19) for seed in (0, 1, 2)]
    lead = page(*close, *rival, *base).lead()
    assert "It is lower than none." in lead
    assert "No difference is shown between it and b." in lead


def test_the_lead_names_a_few_methods_and_counts_the_others(add, page):
    pairs = [("a", "fedeas"), *((f"b{lr}", f"uniform(budget={BUDGET + lr})") for lr in range(5))]
    lead = page(*(add(label, policy) for label, policy in pairs)).lead()
    assert "cannot tell it from b0, b1 and 3 more." in lead
    assert "b4" not in lead


def test_each_federation_has_its_own_conclusion_and_most_methods_come_first(add, page):
    few = [add("few", "no-generation", 0, 0.9, partition={"clients": 7})]
    many = [add("many", "fedeas", 0, 0.6), add("none", "no-generation", 0, 0.4)]
    found = page(*few, *many)
    assert [data for tag, data in found.texts if tag == "b"] == ["many", "few"]


def test_charts_show_long_names_whole(add, page):
    names = ["-".join(["a-method-with-a-long-name"] * 3) + end for end in ("-one", "-two", "-three")]
    runs = [
        add(name, policy, seed, 0.5 + seed / 9 + place * seed / 50)
        for place, (name, policy) in enumerate(zip(names, ("no-generation", "fedeas", "full-balance"), strict=True))
        for seed in (0, 1)
    ]
    differences, *_ = page(*runs, reference=names[0]).charts()
    rows = [text.replace("<br>", "") for text in differences["layout"]["yaxis"]["ticktext"]]
    assert sorted(rows) == sorted(names[1:])


@pytest.mark.parametrize("accuracy", [0.01, 0.8, 0.99])
def test_axes_of_accuracy_hold_all_values_and_end_at_100_percent(add, page, accuracy):
    run = add("a", "fedeas", accuracy=accuracy, classes=[1.0, 0.0], rounds=0)
    for number in range(1, 5):
        run.append_round({"round": number, "clients": [0], "accuracy": accuracy, "class_accuracy": [1.0, 0.0]})
    shown = [chart["layout"]["yaxis"] for chart in page(run).charts()]
    axes = [axis["range"] for axis in shown if "accuracy" in axis.get("title", {}).get("text", "")]
    (curves, price, *others) = axes
    assert 0 <= curves[0] < min(accuracy, 0.75) and max(accuracy, 0.75) < curves[1] <= 1  # 0.75 is the threshold
    assert 0 <= price[0] < 100 * accuracy < price[1] <= 100
    assert all(0 <= low < high <= 100 for low, high in others) and len(others) == 2


def test_methods_are_named_by_label_by_spec_or_by_what_differs(add, page):
    assert set(page(add("s0", "fedeas", 0), add("s1", "fedeas", 1)).result()) == {"fedeas(beta=12) + fedavg"}
    runs = [add("run", policy, train=TrainConfig(lr=lr)) for policy, lr in [("fedeas", 0.1), ("full-balance", 0.1)]]
    assert set(page(*runs).result()) == {"fedeas(beta=12) + fedavg", "full-balance + fedavg"}
    runs.append(add("run", "fedeas", train=TrainConfig(lr=0.2)))
    names = {
        "fedeas(beta=12) + fedavg, train.lr=0.1",
        "fedeas(beta=12) + fedavg, train.lr=0.2",
        "full-balance + fedavg",
    }
    assert set(page(*runs).result()) == names


def test_a_method_has_one_colour_everywhere(five, page):
    found = page(*five)
    differences, curves, price, *_ = found.charts()
    colours = {attributes["style"].split()[-1] for tag, attributes in found.tags if tag == "i"}
    assert len(colours) == 5
    assert all(colour in json.dumps(chart) for colour in colours for chart in (curves, price))
    assert sum(colour in json.dumps(differences) for colour in colours) == 4  # all but the reference


def test_every_name_in_a_legend_switches_the_lines_of_its_method(five, page):
    found = page(*five)
    shown = iter(found.charts())
    buttons, groups = [], set()
    for tag, attributes in found.tags:
        if tag == "button":
            buttons.append(attributes["data-group"])
        elif attributes.get("class") == "chart":
            groups = {trace.get("legendgroup") for trace in next(shown)["data"]}
            assert set(buttons) in (groups, set())
            buttons.clear()


def test_text_from_configs_is_escaped(add, page):
    evil = "<img src=x onerror=alert(1)>'\"&"
    runs = [add("a", "fedeas", model=ModelConfig(weights=weights)) for weights in (evil, "")] + [
        add("c", "full-balance")
    ]
    runs[0].write_json("env.json", {"machine": "<script>", "<b>": 1})
    found = page(*runs, title="</title><script>")
    assert f"fedeas(beta=12) + fedavg, model.weights={evil}" in found.result()
    assert found.text("h1") == "</title><script>"
    kinds = [attributes.get("type") for tag, attributes in found.tags if tag == "script"]
    assert kinds == ["application/json"] * len(found.charts()) + ["text/plain", None] and "<b>" in found.text("dt")
    assert not any("onerror" in attributes for _, attributes in found.tags)
    assert any(evil in attributes.get("aria-label", "") for _, attributes in found.tags)
    assert "&lt;img" in json.dumps(found.charts()) and "<img" not in json.dumps(found.charts())


def test_unfinished_runs_are_drawn_and_listed_but_not_counted(add, page):
    done = [add("ours", "fedeas", seed, 0.7) for seed in (0, 1)]
    without = page(*done)
    waiting = add("ours", "fedeas", 2, 0.1, rounds=3, unfinished=True)
    found = page(*done, waiting)
    assert found.result()["ours"][ACCURACY] == "70.00 ± 0.00"
    assert f"Not in the tables: {waiting.path.name} (unfinished, 3 of 4 rounds)." in found.text()
    statuses = {row[0]: row[3] for row in found.tables["Run directories"][1:]}
    assert statuses[waiting.path.name] == "unfinished, 3 of 4 rounds"
    assert statuses[done[0].path.name] == "finished, 4 rounds"
    assert [trace["x"] for trace in traces_of(found.charts()[0], "dot")] == [[1, 2, 3]]
    assert not traces_of(without.charts()[0], "dot")
    assert "Dotted" in found.text("figcaption") and "Dotted" not in without.text("figcaption")


def test_accuracy_by_class_and_client_is_that_of_the_window_and_of_the_clients_own_mix(add, page):
    runs = [add("a", "fedeas", seed, classes=[0.5, 0.9 + seed / 50]) for seed in (0, 1)]
    found = page(*runs, add("b", "no-generation", 0))
    worst, tenth, average, best = found.result(FAIRNESS)["a"][1:]
    clients = [COUNTS.proportions @ [50, level] for level in (90, 92)]
    assert worst == "50.00 ± 0.00 class 0"
    for shown, of in ((tenth, min), (average, mean), (best, max)):
        values = [of(each) for each in clients]
        assert shown == f"{mean(values):.2f} ± {stdev(values):.2f}"
    assert list(found.result(FAIRNESS)) == ["a"]  # the other run recorded no classes
    by_class, by_client = found.charts()[2:4]
    assert by_class["data"][0]["y"] == [50, 91]
    assert by_client["data"][0]["y"] == pytest.approx(np.sort(np.mean(clients, axis=0)))


def test_classes_that_are_not_tested_do_not_count_for_clients():
    counts = LabelCounts([[3, 1, 6], [0, 0, 5], [0, 9, 1]])
    assert client_accuracy(counts, np.array([0.4, 0.8, np.nan])) == pytest.approx([0.5, 0.8])


def test_a_test_set_without_the_last_class_is_shown(add, page):
    found = page(add("a", "fedeas", classes=[0.5]), add("b", "full-balance", classes=[0.7, None]))
    assert found.result(FAIRNESS)["a"][1] == "50.00 class 0"
    assert [trace["y"] for trace in found.charts()[2]["data"]] == [[50, None], [70, None]]


def test_differences_are_drawn_with_their_intervals(five, page):
    found = page(*five)
    rows = found.result()
    for trace, name in zip(found.charts()[0]["data"], [name for name in rows if name != "fedeas"], strict=True):
        numbers = [float(text.replace("−", "-")) for text in re.findall(r"−?[\d.]+", rows[name][DIFFERENCE])[:3]]
        low, high = trace["x"][0] - trace["error_x"]["arrayminus"][0], trace["x"][0] + trace["error_x"]["array"][0]
        assert numbers == pytest.approx([trace["x"][0], low, high], abs=0.006)


def test_an_unfinished_method_is_not_ranked(add, page):
    done = add("a", "fedeas", 0, 0.7)
    waiting = add("b", f"uniform(budget={BUDGET})", 0, 0.9, rounds=2, unfinished=True)
    found = page(done, waiting)
    assert list(found.result()) == ["a"]
    assert "best" not in found.result()["a"][ACCURACY]
    assert "b" not in found.lead().split()


def test_unfinished_runs_alone_make_a_page_without_a_table(add, page):
    found = page(add("ours", "fedeas", rounds=1, unfinished=True))
    assert "None of these runs has finished yet" in found.text()
    assert set(found.tables) == {"Run directories"}
    assert len(found.charts()) == 3  # the curve and two maps


def test_only_differing_keys_are_compared(add, page, tmp_path):
    runs = [add("a", "fedeas", seed) for seed in (0, 1)]
    assert "What differs" not in page(*runs).tables
    found = page(*runs, add("b", "full-balance", train=TrainConfig(lr=0.5), data={"root": str(tmp_path)}))
    assert found.tables["What differs"] == [
        ["method", "policy", "train.lr"],
        ["a", "fedeas(beta=12)", "0.001"],
        ["b", "full-balance", "0.5"],
    ]
    assert "partition.alpha" in found.text("dt") and "train.lr" not in found.text("dt")
    assert str(tmp_path) not in found.text()


def test_environments_that_differ_are_both_named(add, page):
    runs = [add("a", "fedeas", seed) for seed in (0, 1)]
    for run, device in zip(runs, ("cpu", "cuda:0"), strict=True):
        run.write_json("env.json", {"device": device, "commit": None})
    assert "cpu, cuda:0" in page(*runs).text("dd")


def test_what_runs_could_not_verify_is_listed_only_if_there_is_something(add, page):
    runs = [add("a", "fedeas", seed) for seed in (0, 1)]
    runs[0].write_json("env.json", {"device": "cpu", "unknown": []})
    assert "[]" not in page(*runs).text("dd")
    assert "verified" not in page(*runs).text("dt")
    runs[1].write_json("env.json", {"device": "cpu", "unknown": ["which images w.pt has seen"]})
    assert "could not be verified" in page(*runs).text("dt")
    assert "which images w.pt has seen" in page(*runs).text("dd")


@pytest.mark.parametrize(("seen", "note"), [("seen", "the run's images seen"), ("unknown", "ancestors unknown")])
def test_every_table_says_what_a_generator_may_have_seen(add, page, seen, note):
    found = page(add("a", "fedeas", seen=seen), add("a", "fedeas", 1), add("b", "full-balance"))
    for name in (ACCURACIES, WORK):
        assert {*found.result(name)} == {f"a ({note})", "b"}
    assert f"a ({note}) reaches" in found.lead()
    assert note not in page(add("c", "fedeas", 2)).text()


def test_an_answer_that_is_none_is_damage(add, page):
    with pytest.raises(InputError, match="seen is 'perhaps': Input should be 'clean', 'unknown' or 'seen'"):
        page(add("a", "fedeas", seen="perhaps"))


def test_heat_maps_show_each_plan_once(five, page):
    captions = [data for tag, data in page(*five).texts if tag == "figcaption"]
    maps = ["real: 79 samples", "fedeas, missing-only, uniform: 12 synthetic", "full-balance: 49 synthetic"]
    assert [caption for caption in captions if "samples" in caption or "synthetic" in caption] == maps


def test_kept_results_have_the_same_tables_but_no_heat_maps(five, page, tmp_path):
    whole = page(*five)
    pack_runs(five, tmp_path / "kept.parquet")
    kept = page(*read_runs(tmp_path / "kept.parquet"))
    assert kept.result() == whole.result() and kept.result(WORK) == whole.result(WORK)
    maps = [chart for found in (whole, kept) for chart in found.charts() if chart["data"][0]["type"] == "heatmap"]
    assert len(maps) == 3 and len(kept.charts()) == len(whole.charts()) - 3


def test_runs_without_an_evaluation_yet_have_no_curve(add, page):
    run = add("a", "fedeas", rounds=0, unfinished=True)
    run.append_round({"round": 1, "clients": [0], "generated": 0})
    found = page(run)
    assert "Accuracy over rounds" not in found.text("h2")
    assert "unfinished, 1 of 4 rounds" in found.text()


def _message(runs, path):
    with pytest.raises(InputError) as error:
        write_report(runs, path)
    assert "\n" not in str(error.value) and not path.exists()
    return str(error.value)


def test_errors_are_one_line(add, tmp_path):
    out = tmp_path / "report.html"
    assert "at least one run" in _message([], out)
    empty = add("a", "fedeas", rounds=0, unfinished=True)
    assert f"{empty.path}: no round is recorded yet" in _message([empty], out)
    damaged = add("b", "fedeas", 1)
    (damaged.path / "allocation.npz").unlink()
    assert f"{damaged.path / 'allocation.npz'}: no such file" in _message([damaged], out)
    assert "does not exist" in _message([add("c", "fedeas", 2)], tmp_path / "nowhere" / "report.html")


def test_one_run_does_not_count_as_two(add, tmp_path):
    twins = [add("a", "fedeas", 0), add("b", "fedeas", 0)]
    assert "the same config and seed" in _message(twins, tmp_path / "report.html")
