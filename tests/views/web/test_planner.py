"""The page's logic without a browser: every number that it shows equals the library's."""

import re
import shlex
import sys
import tomllib
from functools import cache

import numpy as np
import pytest

pytest.importorskip("streamlit", reason="streamlit is missing: pip install 'fedeas[web]'")

from hypothesis import assume, given, settings
from strategies import label_counts
from streamlit.testing.v1 import AppTest
from views.web.browser import finish, recorded_runs
from waiting import LIMIT

from fedeas import (
    FedEAS,
    FullBalance,
    Greedy,
    InputError,
    LabelCounts,
    Optimal,
    PolicyError,
    Pool,
    Uniform,
    client_imbalance,
    imbalance,
    imbalance_removed,
    read_counts,
    write_counts,
)
from fedeas.calls.client_counts import run_config
from fedeas.calls.plans import plan as fedeas_plan
from fedeas.cli import main
from fedeas.config import RunConfig, load_config
from fedeas.core.foreign_text import for_markdown
from fedeas.data.names import KNOWN
from fedeas.data.partition import dirichlet, paper_replay
from fedeas.data.sources import load_dataset
from fedeas.federation.split import split_data, split_of
from fedeas.planning.columns import ColumnNames
from fedeas.planning.policies import POLICIES, CostAware
from fedeas.planning.policies.waterfill import Waterfill
from fedeas.planning.request import Limits, choose_policy
from fedeas.runs.store import Run, RunStore
from fedeas.views.figures import DARK, LIGHT
from fedeas.views.methods import RunSnapshot
from fedeas.views.web import FOLDER_VARIABLE, choices, html_plot, plan_charts, runs
from fedeas.views.web.choices import NO_LIMIT, SIZE_WORDS, Choice, Size, table_file
from fedeas.views.web.runs import ListedRun
from fedeas.views.web.serving import APP, PAGE, hosts_of
from reproduction.published import example_counts, published

COUNTS = LabelCounts([[900, 80, 20], [10, 300, 690], [400, 0, 380]])


@pytest.fixture
def app():
    """The page as it is first shown."""
    return AppTest.from_file(str(PAGE), default_timeout=LIMIT).run()


def total(app):
    assert not app.exception
    return int(app.metric[0].value.replace(",", ""))


def test_beta_policy_and_limit_give_the_librarys_totals(app):
    counts = example_counts()
    assert total(app) == FedEAS(beta=12).allocate(counts).total
    app.slider(key="beta").set_value(6.5).run()
    assert total(app) == FedEAS(beta=6.5).allocate(counts).total
    app.selectbox(key="policy").set_value("optimal").run()
    best = Optimal(budget=FedEAS(beta=6.5)).allocate(counts)
    assert total(app) == best.total
    assert app.metric[1].value == f"{imbalance_removed(counts, best):.2%}"
    app.selectbox(key="size").set_value(str(Size.REMOVED)).run()
    app.slider(key="removed").set_value(60)
    app.selectbox(key="policy").set_value("fedeas").run()
    assert float(app.metric[1].value.rstrip("%")) >= 60
    assert app.code[0].value == "fedeas plan --example --min-removed 0.6"


def test_policies_at_one_budget_have_their_own_results(app):
    counts = example_counts()
    app.selectbox(key="size").set_value(str(Size.TOTAL)).run()
    for policy in (Uniform, Optimal, Uniform):
        app.selectbox(key="policy").set_value(policy.name()).run()
        assert app.metric[1].value == f"{imbalance_removed(counts, policy(budget=5000).allocate(counts)):.2%}"


def test_what_is_chosen_for_a_pool_is_planned_and_stands_in_the_command(app):
    assert "fill" not in {box.key for box in app.selectbox}
    app.selectbox(key="policy").set_value("pool").run()
    assert app.code[0].value == "fedeas plan --example --policy pool --beta 12"
    app.selectbox(key="fill").set_value("max").run()
    plan = Pool(FedEAS(beta=12), fill="max").allocate(example_counts())
    assert total(app) == plan.generated
    assert app.metric[1].value == f"{imbalance_removed(example_counts(), plan):.2%}"
    command = shlex.split(app.code[0].value)
    assert choose_policy(command[command.index("--policy") + 1], Limits(beta=12)).spec == plan.policy


def test_images_that_clients_share_are_counted_once(app):
    app.selectbox(key="policy").set_value("pool").run()
    plan = Pool(distinct=FedEAS(beta=12)).allocate(example_counts())
    assert total(app) == plan.generated < plan.total


def test_minutes_and_rate_are_a_limit_and_a_price(app):
    app.selectbox(key="size").set_value(str(Size.MINUTES)).run()
    app.number_input(key="rate").set_value(10.0)
    app.number_input(key="minutes").set_value(5.0).run()
    assert 2900 < total(app) <= 5 * 60 * 10
    app.session_state["view"] = "Prices"
    prices = app.run().dataframe[0].value.set_index("policy")
    assert prices.loc["full-balance", "minutes"] == pytest.approx(226_783 / 10 / 60)


def test_every_client_is_listed_with_its_images_those_with_most_first(app):
    counts = example_counts()
    plan, demand = FedEAS(beta=12).allocate(counts), FullBalance().allocate(counts)
    app.session_state["view"] = "Clients"
    table = app.run().dataframe[0].value
    order = [*map(int, table["client"])]
    assert sorted(order) == [*range(counts.num_clients)]
    assert table["this plan"].is_monotonic_decreasing
    columns = {"real": counts.sizes, "this plan": plan.per_client, "full balance": demand.per_client}
    assert all(np.array_equal(table[name], values[order]) for name, values in columns.items())
    assert table["evenness"].tolist() == pytest.approx(counts.entropy[order])
    shares = client_imbalance(counts) / imbalance(counts)
    assert table["imbalance"].tolist() == pytest.approx(shares[order])


def test_a_bad_table_is_explained_and_a_good_one_planned(app):
    app.segmented_control(key="source").set_value("My file").run()
    assert "Upload a table" in app.info[0].value
    app.file_uploader(key="file").set_value(("bad.csv", b"client,cat,dog\nbob,2.5,4\n", "text/csv")).run()
    assert "fractional count 2\\.5; give whole numbers" in app.error[0].value
    app.file_uploader(key="file").set_value(("good.csv", b"cat,dog\n20,4\n", "text/csv")).run()
    assert not app.error
    assert any("Clients: 1, classes: 2, real images: 24" in each.value for each in app.caption)
    assert total(app) == FedEAS(beta=12).allocate(LabelCounts([[20, 4]])).total


def test_an_error_names_the_boxes_of_the_page_not_the_options_of_the_command_line(app):
    app.segmented_control(key="source").set_value("My file").run()
    boxes = {box.label for box in (*app.text_input, *app.expander)}
    for table, box in {
        b"ort,cat,dog\n1,3,4\n2,5,6\n3,7,8\n": "write ort into 'Column of the client'",
        b"befund,ort,count\nx,a,3\ny,a,4\n": "'Column of the client', 'Column of the label'",
        b"client,label,count\na,x,3\na,x,4\nb,y,5\n": "write count into 'Column of the count'",
        b"client,city,cat\na,Bonn,1\nb,Kiel,3\n": "'Column of the count'",
        b"label,count\nx,3\n": "'Column of the client'",
    }.items():
        with pytest.raises(InputError) as refused:
            choices.read_upload("t.csv", table)
        words = str(refused.value)
        assert box in words
        assert "--" not in words
        assert {*re.findall(r"'(Columns?[ ,].*?)'", words)} <= boxes


def test_an_error_on_the_number_of_classes_names_no_option():
    with pytest.raises(InputError, match="leave the number of classes out") as refused:
        choices.read_upload("t.csv", b"cat,dog\n1,2\n", 4)
    assert "--" not in str(refused.value)


@pytest.mark.parametrize("content", [b"\x89PN\0", b"client,caf\xe9,x\n\xff,1,-2\n", b"\xff\xfe\0", b"a,b\n1,[1]\n"])
def test_an_odd_upload_gives_one_line_of_error(app, content):
    app.segmented_control(key="source").set_value("My file").run()
    app.file_uploader(key="file").set_value(("odd.csv", content, "text/csv")).run()
    assert not app.exception
    assert len(app.error) == 1
    assert "\n" not in app.error[0].value


def test_an_unexpected_fault_is_one_line_on_the_page(app, monkeypatch):
    def broken(*arguments):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(Choice, "resolved", broken)
    app.slider(key="beta").set_value(3.0).run()
    assert not app.exception
    assert "ZeroDivisionError" in app.error[0].value


def test_a_drawn_federation_is_planned(app):
    app.segmented_control(key="source").set_value("Draw").run()
    app.number_input(key="clients").set_value(7)
    app.number_input(key="seed").set_value(3).run()
    counts = choices.drawn_from("cifar10", 7, 0.1, 3).counts
    assert total(app) == FedEAS(beta=12).allocate(counts).total
    assert app.code[0].value.startswith("fedeas partition cifar10 --clients 7 --alpha 0.1 --seed 3 --out counts.csv\n")


@pytest.mark.parametrize(
    "spec", [*(name for name in POLICIES if name != "cost-aware"), "cost-aware(price=0.1)", "pool(fill=max)"]
)
def test_every_policy_has_words_a_command_and_a_config(spec, tmp_path):
    policy = spec.partition("(")[0]
    needs_budget = issubclass(POLICIES[policy], FedEAS) or POLICIES[policy].budget_field
    choice = Choice(spec, Limits(total=700) if needs_budget else NO_LIMIT)
    chosen = choice.resolved(COUNTS)
    data = {"data": {"dataset": "digits"}}
    federation = choices.CountSource("mine", COUNTS, str(tmp_path / "counts.csv"), config=data)
    (tmp_path / "counts.csv").write_bytes(table_file(COUNTS))
    (tmp_path / "run.toml").write_text(run_config(federation, chosen))
    config = load_config(tmp_path / "run.toml")
    assert config.policy == chosen.spec
    assert policy != "pool" or chosen.fill == ("max" if "max" in spec else "mean")
    assert config.generator.startswith("shared(") == (policy == "pool")
    with pytest.raises(SystemExit):
        main([*shlex.split(choice.commands(federation))[1:], "--out", str(tmp_path / "plan.csv")])
    assert (tmp_path / "plan.csv").read_bytes() == table_file(COUNTS, chosen.allocate(COUNTS))
    assert POLICIES[policy].description
    assert set(SIZE_WORDS) == set(Size)


def test_the_config_of_a_known_federation_holds_the_same_clients():
    split = {"paper": paper_replay, "dirichlet": dirichlet}
    for federation in (choices.paper("c10-k20-a0.3"), choices.drawn_from("cifar100", 30, 0.2, 7)):
        content = tomllib.loads(run_config(federation, FedEAS(beta=3)))
        section, scheme = content["partition"], content["partition"].pop("scheme")
        labels = KNOWN[content["data"]["dataset"]].labels(merged=scheme == "paper")
        assert np.array_equal(split[scheme](labels, **section).counts.n, federation.counts.n)
        assert content["policy"] == "fedeas(beta=3)"


def test_a_run_config_is_offered_only_for_clients_that_a_run_can_have(app):
    def offers_config():
        assert not app.exception
        explained = any("a run needs images" in each.value for each in app.caption)
        offered = any(each.label.startswith("Run config") for each in app.get("download_button"))
        assert offered is not explained
        return offered

    assert offers_config()
    app.segmented_control(key="source").set_value("Draw").run()
    assert offers_config()
    app.selectbox(key="dataset").set_value("classes of equal size").run()
    assert not offers_config()
    app.segmented_control(key="source").set_value("My file").run()
    app.file_uploader(key="file").set_value(("mine.csv", b"cat,dog\n20,4\n", "text/csv")).run()
    assert not offers_config()


def test_a_config_is_not_written_for_counts_alone():
    with pytest.raises(InputError, match="a run needs images"):
        run_config(choices.drawn(3, 4, 10, 0.5, 0), FedEAS(beta=3))


def test_uploads_are_read_in_both_forms_and_formats(tmp_path):
    for ending in (".csv", ".parquet"):
        write_counts(tmp_path / f"wide{ending}", COUNTS)
        found = choices.read_upload(f"wide{ending}", (tmp_path / f"wide{ending}").read_bytes())
        assert found.counts == read_counts(tmp_path / f"wide{ending}")
    rows = choices.read_upload("my rows.csv", b"client,label\na,0\na,2\nb,2\n", 4)
    assert rows.counts.n.tolist() == [[1, 0, 1, 0], [0, 0, 1, 0]]
    assert Choice().commands(rows) == "fedeas plan 'my rows.csv' --classes 4"


def test_an_upload_says_how_it_was_read_and_its_command_reads_it_in_the_same_way():
    table = b"befund,ort,anzahl\nx,A,3\ny,A,40\nx,B,50\ny,B,6\n"
    found = choices.read_upload("t.csv", table, columns=ColumnNames("ort", "befund", "anzahl"))
    assert found.counts.n.tolist() == [[3, 40], [50, 6]]
    assert "'befund'" in found.how
    assert shlex.split(found.arguments)[1:] == [
        "--client-column", "ort", "--label-column", "befund", "--count-column", "anzahl"
    ]  # fmt: skip


def test_the_config_of_an_uploaded_split_has_its_clients(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    split_of(load_config(None, ["partition.clients=4"]), needs_indices=True).partition.save("split.npz")
    found = choices.read_upload("split.npz", (tmp_path / "split.npz").read_bytes())
    (tmp_path / "run.toml").write_text(run_config(found, FedEAS(beta=3)))
    config = load_config("run.toml")
    assert split_data(config, load_dataset(config.data.dataset)).counts.n.tolist() == found.counts.n.tolist()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.npz", b"no", "a.npz: damaged"),
        ("a.xlsx", b"", "upload a .csv, .parquet or .npz file"),
        ("a.csv", b"client,cat,dog\nann,-1,3\n", "a.csv: row 1 (client 'ann')"),
        ("a.csv", b"", "a.csv: is empty; give a header"),
        ("a.parquet", b"PAR1 no more", "a.parquet: cannot be read"),
        ("a.csv", b"0" * (20 * 10**6 + 1), "larger than 20 MB"),
        ("a.csv", ",".join(map(str, range(1500))).encode() + b"\n" + b",".join([b"1"] * 1500), "1,500 classes"),
        ("a.csv", b"client,label\n" + b"".join(b"%d,%d\n" % (i, i) for i in range(900)), "900 clients x 900 classes"),
    ],
)
def test_impossible_uploads_are_refused_with_a_reason(name, content, words):
    with pytest.raises(InputError) as refused:
        choices.read_upload(name, content)
    assert words in str(refused.value)
    assert "fedeas-planner-" not in str(refused.value)


def test_curves_run_from_little_to_full_balance_and_no_policy_beats_the_optimum():
    counts = example_counts()
    found = plan_charts.curves(counts)
    reachable = cache(lambda total: imbalance_removed(counts, Optimal(budget=total).allocate(counts)))
    for name, path in found.paths.items():
        assert path.total[0] < found.demand.total / 500, name
        assert (path.removed <= [reachable(total) + 1e-9 for total in path.total.tolist()]).all(), name
    for name in ("greedy", "optimal"):
        assert found.paths[name].total[-1] == found.demand.total
        assert np.diff(np.log10(found.paths[name].total)).max() < 0.25  # as dense as the others, or denser
    low, high = found.budgets
    assert imbalance_removed(counts, FedEAS(beta=found.interval.lo).allocate(counts)) >= 0.5
    assert low < high < counts.total / 3


@settings(max_examples=8)
@given(counts=label_counts(max_clients=4, max_count=60))
def test_every_point_of_the_references_is_what_they_do_with_that_budget(counts):
    demand = FullBalance().allocate(counts).total
    assume(demand)  # where all are balanced no price finds a buyer, and nothing is drawn
    vessels = Waterfill(counts)
    greedy, optimal = (plan_charts.reference_plans(vessels, take, fewest=0) for take in plan_charts.TAKES.values())
    for plan in greedy:
        assert np.array_equal(plan.n, Greedy(budget=plan.total).allocate(counts).n)
    for plan in optimal:
        best = Optimal(budget=plan.total).allocate(counts)
        assert imbalance(counts, plan) <= imbalance(counts, best) + 1e-12
    for plans in (greedy, optimal):
        totals = [plan.total for plan in plans]
        assert totals == sorted(set(totals))
        assert totals[-1] == demand


def test_balanced_and_tiny_federations_are_drawn_too():
    for counts in (LabelCounts([[5, 5], [7, 7]]), LabelCounts([[1, 0]])):
        found = fedeas_plan(counts, "fedeas(beta=3)")
        point = (found.policy.spec, found.allocation.total, found.summary.removed)
        curves = plan_charts.curves(counts)
        plots = [plan_charts.trade_off(curves, *point)]
        plan_charts.tall_heat_map(counts, found.allocation.n, np.arange(counts.num_clients), 0)
        html_plot.heat_table(counts, found.allocation.n, np.arange(counts.num_clients), 0, "none")
        assert not any(re.search(r"nan|inf[,%]", text) for text in map(html_plot.plot_html, plots))


def test_prices_are_images_times_rate_and_size():
    plan = Uniform(budget=1200).allocate(COUNTS)
    prices = plan_charts.prices(COUNTS, [plan], plan.policy, rate=2, side=100)
    assert [prices[name] for name in ("policy", "images", "minutes", "MB")] == [[plan.policy], [1200], [10], [36]]


def test_names_from_files_stay_text():
    assert for_markdown("![x](http://example.org)") == r"\!\[x\]\(http\://example\.org\)"
    counts = LabelCounts([[1, 2]], clients=["<a href='x'>"], classes=["<b>", 'c" onclick="d'])
    shown = counts, counts.n, np.array([0]), 2
    for text in (repr(plan_charts.tall_heat_map(*shown)), html_plot.heat_table(*shown, "t")):
        assert "<a " not in text
        assert "&lt;b&gt;" in text
    assert 'onclick="' not in html_plot.heat_table(*shown, "t")
    text = html_plot.plot_html(plan_charts.trade_off(plan_charts.curves(counts), "<a href='x'>", 3, 0.5))
    assert text.count("&lt;a href=&#x27;x&#x27;&gt;") == 1
    assert "<a " not in text


def test_a_small_heat_map_is_a_table_with_its_numbers_and_blanks():
    counts = LabelCounts(np.arange(60).reshape(6, 10) * 7)
    assert html_plot.is_small(*counts.n.shape)
    text = html_plot.heat_table(counts, counts.n, np.array([0, 5, 2]), 413, "t")
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in text.split("<tr>")[1:]]
    assert rows[0] == ["client", *map(str, range(10))]
    assert rows[1] == ["0", "", *map(str, range(7, 70, 7))]
    assert [row[0] for row in rows[1:]] == ["0", "5", "2"]
    assert rows[2][1:] == [str(number) for number in counts.n[5]]


@pytest.mark.parametrize("screen", [LIGHT, DARK])
def test_every_number_of_a_heat_table_can_be_read_on_its_colour(screen):
    counts = LabelCounts(np.unique(np.geomspace(1, 1000, 12).astype(int))[None])
    text = html_plot.heat_table(counts, counts.n, np.array([0]), 1000, "t", screen)
    cells = re.findall(r"background:(#\w{6});color:(#\w{6})", text)
    brightness = [relative_luminance(back) for back, _ in cells]
    assert len(cells) == counts.num_classes
    assert brightness == sorted(brightness, reverse=screen is LIGHT)  # most is the farthest from the page's colour
    for back, ink in cells:
        dark, bright = sorted(map(relative_luminance, (back, ink)))
        assert (bright + 0.05) / (dark + 0.05) >= 4.5  # what WCAG asks for


def relative_luminance(colour):
    """As WCAG defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def test_every_client_of_a_large_heat_map_has_its_name():
    counts = LabelCounts(np.arange(5000).reshape(500, 10))
    assert not html_plot.is_small(*counts.n.shape)
    layout = plan_charts.tall_heat_map(counts, counts.n, np.arange(500), 60)["layout"]
    assert layout["yaxis"]["dtick"] == 1
    assert layout["height"] >= 15 * 500


def test_runs_are_listed_with_their_curves_and_unreadable_ones_say_so(tmp_path):
    recorded_runs(tmp_path)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    found = {run.name.partition("-")[0]: run for run in runs.listed(tmp_path).runs}
    assert found["finished"].content.finished
    assert (found["finished"].accuracy, found["finished"].window) == (pytest.approx(0.86), "round 6")
    assert (found["under"].accuracy, found["under"].latest) == (None, pytest.approx(0.68))
    assert found["under"].content.curve.accuracy == pytest.approx([0.58, 0.63, 0.68])
    assert found["broken"].state.startswith("cannot be read")
    figure, methods = runs.drawn(found.values())
    dashes = {trace["name"].partition("-")[0]: trace["line"]["dash"] for trace in figure["data"]}
    assert methods == 2
    assert dashes == {"finished": "solid", "under": "dot"}


def test_a_stopped_run_is_told_from_one_in_progress(tmp_path):
    recorded_runs(tmp_path)
    (run,) = (run for run in RunStore(tmp_path).all() if not run.finished)

    def shown():
        listing = runs.listed(tmp_path)
        (listed,) = (each for each in listing.runs if each.name == run.path.name)
        (end,) = {trace["marker"]["symbol"] for trace in runs.drawn([listed])[0]["data"]}
        return listed.state, listing.any_under_way, end

    assert shown() == ("stopped: 3 of 6 rounds", False, "x")
    with run.locked():
        assert shown() == ("running: 3 of 6 rounds", True, "circle")


def test_seeds_of_a_method_are_one_line_on_a_band(tmp_path):
    for seed, level in enumerate((0.2, 0.4, 0.9)):
        run = RunStore(tmp_path).open(load_config(None, ["label=mine", f"seed={seed}", "rounds.total=2"]))
        for number in (1, 2):
            run.append_round({"round": number, "accuracy": level})
        if level < 0.9:
            finish(run, level, 2)
    band, mean, unfinished = runs.drawn(runs.listed(tmp_path).runs)[0]["data"]
    assert (mean["name"], [each["showlegend"] for each in (band, mean, unfinished)]) == ("mine", [False, True, False])
    assert sorted(set(band["y"])) == [0.2, 0.4]
    assert mean["y"] == pytest.approx([0.3, 0.3])
    assert unfinished["y"] == [0.9, 0.9]


def test_one_config_under_two_labels_is_two_lines(tmp_path):
    for label, level in (("a", 0.2), ("b", 0.4)):
        run = RunStore(tmp_path).open(load_config(None, [f"label={label}", "rounds.total=1"]))
        run.append_round({"round": 1, "accuracy": level})
        finish(run, level, 1)
    found = runs.drawn(runs.listed(tmp_path).runs)[0]["data"]
    assert {trace["name"]: trace["y"] for trace in found} == {"a": [0.2], "b": [0.4]}


def test_methods_of_one_label_are_named_by_what_differs_and_few_rounds_are_numbered_one_by_one(tmp_path):
    for rate in ("0.1", "0.2"):
        run = RunStore(tmp_path).open(load_config(None, ["label=mine", f"train.lr={rate}", "rounds.total=2"]))
        run.append_round({"round": 1, "accuracy": 0.5})
    figure, _ = runs.drawn(runs.listed(tmp_path).runs)
    assert {trace["name"].rpartition("=")[2] for trace in figure["data"]} == {"0.1", "0.2"}
    assert figure["layout"]["xaxis"]["dtick"] == 1


def test_there_is_room_for_the_name_of_every_method_below_the_lines(tmp_path):
    def figure(labels):
        configs = [RunConfig(label=label, policy=f"uniform(budget={n + 1})") for n, label in enumerate(labels)]
        contents = [RunSnapshot(Run(tmp_path, each), [{"round": 1, "accuracy": 0.1}], None, None) for each in configs]
        return runs.drawn([ListedRun("r", content=content) for content in contents])[0]

    short, long = [f"method-{place}" for place in range(24)], "fedavg-partition-scheme-" * 4
    alone = figure(short[:1])["layout"]["height"]
    assert figure(short)["layout"]["height"] - alone >= 23 * 19  # on a narrow screen, each name has a line of 19 pixels
    (trace,) = figure([long])["data"]
    lines = trace["name"].split("<br>")
    assert "".join(lines) == long
    assert max(map(len, lines)) <= runs.LEGEND_CHARACTERS
    assert figure([long])["layout"]["height"] - alone >= (len(lines) - 1) * 19


def test_the_page_says_how_many_methods_it_does_not_draw(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    recorded_runs(tmp_path)
    monkeypatch.setattr(runs, "MOST_METHODS", 1)
    monkeypatch.setattr(runs, "MOST_RUNS", 1)
    assert any("1 older ones are not" in each.value for each in runs_tab().caption)
    monkeypatch.setattr(runs, "MOST_RUNS", 2)
    assert any("1 of 2 methods" in each.value for each in runs_tab().caption)


def runs_tab():
    """The page with its tab of runs."""
    page = AppTest.from_file(str(PAGE), default_timeout=LIMIT)
    page.session_state["page"] = "Runs"
    return page.run()


def test_runs_are_read_again_when_they_have_changed(tmp_path):
    recorded_runs(tmp_path)
    (run,) = (run for run in RunStore(tmp_path).all() if not run.finished)
    before = {each.name: each for each in runs.listed(tmp_path).runs}
    run.append_round({"round": 4, "accuracy": 0.9})
    after = {each.name: each for each in runs.listed(tmp_path).runs}
    assert {name for name in after if after[name].content is not before[name].content} == {run.path.name}
    assert after[run.path.name].content.curve.accuracy[-1] == 0.9
    finish(run, 0.8, 4)
    assert runs.listed(tmp_path).runs[0].accuracy == 0.8


def test_the_page_says_whether_it_watches_the_runs(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    shown = runs_tab()
    assert any("No run directories" in each.value for each in shown.info)
    recorded_runs(tmp_path)
    (run,) = (run for run in RunStore(tmp_path).all() if not run.finished)
    with run.locked():
        assert any("refreshed every 3 seconds" in each.value for each in shown.run().caption)
    assert any("none is in progress" in each.value for each in shown.run().caption)
    assert not shown.exception


def test_an_unreadable_folder_of_runs_is_one_line(tmp_path, monkeypatch):
    def broken(folder):
        raise MemoryError("two\nlines")

    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(runs, "listed", broken)
    shown = runs_tab()
    assert not shown.exception
    assert [each.value.count("\n") for each in shown.error] == [0]


def test_the_command_binds_to_loopback_and_sends_no_statistics(monkeypatch):
    calls = []
    monkeypatch.setattr("streamlit.web.cli.main", lambda arguments, standalone_mode: calls.append(arguments))
    monkeypatch.setenv("FEDEAS_PLANNER_RUNS", "")
    with pytest.raises(SystemExit) as stopped:
        main(["planner", "--port", "9000"])
    assert stopped.value.code == 0
    assert [call[:2] for call in calls] == [["run", str(APP)]]
    hosts = [f"--server.allowedHosts={name}" for name in hosts_of("127.0.0.1")]
    assert [option for option in calls[0] if "allowedHosts" in option] == hosts
    assert {"--server.address=127.0.0.1", "--server.port=9000", "--browser.gatherUsageStats=false"} <= set(calls[0])


def test_without_streamlit_the_command_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "streamlit.web.cli", None)
    with pytest.raises(SystemExit) as stopped:
        main(["planner"])
    assert stopped.value.code == 2
    assert "pip install 'fedeas[web]'" in capsys.readouterr().err


def test_all_of_the_papers_partitions_can_be_chosen():
    assert len(published().settings) == 8
    for setting in published().settings:
        assert choices.paper(setting.id).counts.num_clients == setting.clients


def test_a_price_without_a_budget_is_a_choice_too():
    assert Choice("cost-aware(price=0.25)").resolved(COUNTS) == CostAware(price=0.25)
    with pytest.raises(PolicyError):
        Choice("missing-only", Limits(total=5)).resolved(LabelCounts([[1, 2]])).allocate(LabelCounts([[1, 2]]))


def test_runs_that_cannot_be_listed_during_a_refresh_are_told_once(tmp_path, monkeypatch):
    def page(folder, watching):
        from fedeas.views.web.planner import show_runs

        show_runs(folder, watching)

    def fail(folder):
        asked.append(folder)
        raise InputError("no such disk")

    asked = []
    monkeypatch.setattr("fedeas.views.web.runs.listed", fail)
    app = AppTest.from_function(page, args=(tmp_path, True)).run(timeout=LIMIT)
    assert [error.value for error in app.error] == ["no such disk"]
    assert len(asked) == 1
