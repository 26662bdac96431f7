"""The page of ``fedeas planner``: label counts, the choice of a policy, its plan, and downloads.

Streamlit runs this file again at every change. The other modules of this package compute; results that do not depend
on the last change are cached, and only the tab that is open is computed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from fedeas.client_counts import CountSource, run_config
from fedeas.core.arrays import IntArray
from fedeas.core.foreign_text import for_markdown, printable
from fedeas.core.log import log
from fedeas.data.known import KNOWN
from fedeas.errors import FedEASError
from fedeas.paper.published import EXAMPLE, published
from fedeas.planning.advice import SHOWN
from fedeas.planning.columns import ColumnNames
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.plan import Plan
from fedeas.planning.policies import POLICIES, Policy
from fedeas.planning.request import Limits, policy_left_out
from fedeas.plans import plan
from fedeas.plotting import figures as plots
from fedeas.plotting.figures import DARK, LIGHT, Screen
from fedeas.web import charts, downloads, heat_table, html_plot, plan_charts, plan_result, runs, sources
from fedeas.web.choices import SIZE_WORDS, Choice, Size, takes_budget
from fedeas.web.html_plot import Plot
from fedeas.web.plan_result import Curves
from fedeas.web.runs import ListedRun

OWN = "classes of equal size"
REFRESH_SECONDS = 3.0  # while a run is in progress
PAPER, FILE, DRAW = "Paper", "My file", "Draw"
MOST_BESIDE = 25  # classes of heat maps that are side by side
MOST_WHOLE, SCROLLED = 45, 820  # clients of a figure that is shown as a whole; pixels of one that is not
QUIET: dict[str, Any] = {"displayModeBar": False, "scrollZoom": False}
NARROW = """<style>
.block-container {padding: 2.2rem min(2rem, 4vw) 2rem; max-width: 1500px}
h1 {font-size: 1.9rem !important}
</style>"""


def _key(counts: LabelCounts) -> object:
    return counts.n.shape, counts.n.tobytes(), counts.clients, counts.classes


_cached: Callable[..., Any] = st.cache_data(show_spinner=False, max_entries=32, hash_funcs={LabelCounts: _key})
_paper, _drawn, _drawn_from = _cached(sources.paper), _cached(sources.drawn), _cached(sources.drawn_from)
_uploaded, _curves = _cached(sources.read_upload), _cached(plan_result.curves)
_plan, _rivals = _cached(plan), _cached(plan_result.rivals)


def page() -> None:
    """The whole page."""
    st.set_page_config("FedEAS planner", layout="wide", initial_sidebar_state="collapsed")
    st.html(NARROW)
    st.title("FedEAS planner")
    st.caption("How many synthetic images should each client of a federation generate, and of which classes?")
    folder = Path(os.environ.get(runs.FOLDER_VARIABLE, "runs"))
    _show_tabs("page", {"Plan": _plan_tab, "Runs": partial(_runs_tab, folder)})


def _show_tabs(key: str, tabs: Mapping[str, Callable[[], None]]) -> None:
    """Tabs by their names, of which only the open one is computed."""
    for tab, show in zip(st.tabs(list(tabs), key=key, on_change="rerun"), tabs.values(), strict=True):
        if tab.open:
            with tab:
                show()


def _plan_tab() -> None:
    controls, results = st.columns([1, 2.6], gap="large")
    with _explaining(results):
        with controls:
            federation = _choose_federation()
        if federation is None:
            results.info("Upload a table of label counts to see its plan.")
            return
        with controls:
            choice = _choose_policy(federation.counts)
            rate, side = _choose_prices(choice)
        policy = choice.resolved(federation.counts)
        found = _plan(federation.counts, policy.spec)
        with results:
            _show(federation.counts, found, rate, side)
            _show_downloads(federation, choice, policy, found.allocation)


@contextmanager
def _explaining(place: Any) -> Iterator[None]:
    """Show an error as one line on the page, and in full only in the server's log."""
    try:
        yield
    except FedEASError as error:
        place.error(for_markdown(error))
    except Exception as error:
        log.exception("the page could not be shown")
        place.error(for_markdown(f"this cannot be shown ({type(error).__name__}); the server's log says more"))


def _choose_federation() -> CountSource | None:
    st.subheader("1. Label counts")
    source = st.segmented_control("Where from?", [PAPER, FILE, DRAW], default=PAPER, required=True, key="source")
    found = {PAPER: _from_paper, FILE: _from_file, DRAW: _from_draw}[source]()
    if found is not None:
        counts = found.counts
        st.caption(f"{counts.num_clients:,} clients, {counts.num_classes:,} classes, {counts.total:,} real images")
        if found.how:
            st.caption(for_markdown(f"Read as {found.how}."))
    return found


def _from_paper() -> CountSource:
    titles = {setting.id: setting.title for setting in published().settings}
    words = "K clients; a smaller alpha means more skew. The clients' training parts are counted."
    names = list(titles)
    chosen = st.selectbox(
        "Partition", names, names.index(EXAMPLE), format_func=titles.__getitem__, help=words, key="paper"
    )
    return _paper(chosen)  # type: ignore[no-any-return]


def _from_file() -> CountSource | None:
    file = st.file_uploader(
        "CSV, Parquet or NPZ", ["csv", "parquet", "npz"], max_upload_size=sources.MAX_MEGABYTES, key="file"
    )
    st.caption(
        "A row for each client with a column of counts for each class; a row for each client and class with a count; "
        "a row for each image with its client and label; or a split of `fedeas partition --out split.npz`. "
        "The file stays on this machine."
    )
    words = "Only for rows of images whose labels are numbers, if no client has some class."
    classes = st.number_input("Number of classes (0: those that occur)", 0, sources.MAX_CLASSES, help=words)
    with st.expander("Columns, if they are not recognised"):
        named = [st.text_input(f"Column of the {what}", key=f"{what} column") for what in ("client", "label", "count")]
    if file is None:
        return None
    columns = ColumnNames(*(name or None for name in named))
    return _uploaded(file.name, file.getvalue(), int(classes) or None, columns)  # type: ignore[no-any-return]


def _from_draw() -> CountSource:
    sizes = [*(name for name in KNOWN if name != "digits"), OWN]
    dataset = st.selectbox("Class sizes of", sizes, key="dataset")
    left, right = st.columns(2)
    clients = int(left.number_input("Clients", 1, 500, 20, key="clients"))
    words = "Dirichlet concentration: 0.05 is extreme skew, 100 is almost none."
    alpha = float(right.number_input("Alpha", 0.01, 100.0, 0.1, 0.05, help=words, key="alpha"))
    seed = int(left.number_input("Seed", 0, 10**6, 42, key="seed"))
    if dataset != OWN:
        return _drawn_from(dataset, clients, alpha, seed)  # type: ignore[no-any-return]
    classes = int(right.number_input("Classes", 2, 200, 10, key="classes"))
    each = int(left.number_input("Images of each class", 10, 10_000, 1000, key="each"))
    return _drawn(clients, classes, each, alpha, seed)  # type: ignore[no-any-return]


def _choose_policy(counts: LabelCounts) -> Choice:
    st.subheader("2. Policy")
    usable = [name for name, kind in POLICIES.items() if kind.suits(counts)]
    policy = st.selectbox("Who gets images?", usable, key="policy")
    st.caption(POLICIES[policy].description)
    st.caption("\n".join(["Policies to compare, by our experiments:", "", *(f"- {each}" for each in SHOWN.clauses)]))
    if policy == "cost-aware":
        words = "One image is worth at most 4 / (number of classes); at a higher price nothing is generated."
        return Choice(policy, price=float(st.slider("Price of an image", 0.001, 0.4, 0.1, 0.001, help=words)))
    return Choice(policy, _choose_limits(policy)) if takes_budget(policy) else Choice(policy)


def _choose_limits(policy: str) -> Limits:
    size = Size(st.selectbox("How many images in all?", [str(each) for each in Size], key="size"))
    words = SIZE_WORDS[size]
    if size is Size.BETA:
        limits = Limits(beta=float(st.slider("Beta", 0.1, 40.0, 12.0, 0.1, key="beta")))
    elif size is Size.TOTAL:
        limits = Limits(total=int(st.number_input("Images at most", 0, 10**8, 5000, 500, key="total")))
    elif size is Size.MINUTES:
        minutes = float(st.number_input("Minutes at most", 0.0, 1e5, 10.0, 1.0, key="minutes"))
        limits = Limits(minutes=minutes, images_per_second=_rate())
    elif size is Size.SHARE:
        limits = Limits(max_share=st.slider("Synthetic share below, %", 1, 95, 25, key="share") / 100)
    elif size is Size.REMOVED:
        limits = Limits(min_removed=st.slider("Imbalance removed at least, %", 1, 99, 50, key="removed") / 100)
    else:
        limits = Limits(auto=True)
    # Sizes are defined for FedEAS.
    spent = "all of it" if size in (Size.TOTAL, Size.MINUTES, Size.SHARE) else "as many images as FedEAS then does"
    st.caption(words if policy == "fedeas" else f"{words} {policy} spends {spent}.")
    return limits


def _rate() -> float:
    return float(st.number_input("Images per second", 0.01, 1e5, 20.0, 1.0, help="Of your generator.", key="rate"))


def _choose_prices(choice: Choice) -> tuple[float, int]:
    st.subheader("3. Prices")
    given = choice.limits.images_per_second if takes_budget(choice.policy) else None
    rate = _rate() if given is None else given
    side = int(st.number_input("Pixels along a side", 8, 2048, 32, help="Colour, 3 bytes a pixel.", key="side"))
    return rate, side


def _show(counts: LabelCounts, found: Plan, rate: float, side: int) -> None:
    _show_figures_of(counts, found)
    rows = plots.most(found.allocation.per_client, charts.MOST_CLIENTS)
    views = {
        "Where images go": partial(_show_where, counts, found, rows),
        "Clients": partial(_show_clients, counts, found, rows),
        "Budget": partial(_show_budget, counts, found),
        "Prices": partial(_show_prices, counts, found, rate, side),
    }
    _show_tabs("view", views)


def _show_where(counts: LabelCounts, found: Plan, rows: IntArray) -> None:
    tables = {"Real images": counts.n, "Synthetic images": found.allocation.n}
    largest = max(int(table[rows].max()) for table in tables.values())
    show = _show_tables if heat_table.is_small(rows.size, counts.num_classes) else _show_maps
    show(counts, tables, rows, largest)
    st.caption(f"One colour scale for both; blank means none. {_selected(counts, rows)}")


def _show_tables(counts: LabelCounts, tables: dict[str, IntArray], rows: IntArray, largest: int) -> None:
    screen = _screen()
    st.html(heat_table.heat_style(screen))
    for place, (title, table) in zip(st.columns(2), tables.items(), strict=True):
        place.html(heat_table.heat_table(counts, table, rows, largest, title, screen))
    st.html(heat_table.heat_scale(largest, screen))


def _show_maps(counts: LabelCounts, tables: dict[str, IntArray], rows: IntArray, largest: int) -> None:
    beside = counts.num_classes <= MOST_BESIDE  # more classes need the whole width for their names
    places = _scrolled(rows).columns(2) if beside else (_scrolled(rows), _scrolled(rows))
    for place, (title, table) in zip(places, tables.items(), strict=True):
        _chart(place, charts.heat_map(counts, table, rows, largest, title, _screen()), title)


def _show_clients(counts: LabelCounts, found: Plan, rows: IntArray) -> None:
    demand = _curves(counts).demand
    with _scrolled(rows):
        _plot(st, plan_charts.demand_dots(counts, found.allocation, demand, rows))
    if selected := _selected(counts, rows):
        st.caption(selected)
    left, right = st.columns([1.6, 1])
    _plot(left, plan_charts.concentration(counts, found.allocation))
    _show_most(right, counts, found)


def _show_budget(counts: LabelCounts, found: Plan) -> None:
    curves = _curves(counts)
    point = (found.allocation.policy, found.allocation.total, found.summary.removed)
    _plot(st, plan_charts.trade_off(curves, *point))
    _show_interval(curves)


def _scrolled(rows: IntArray) -> Any:
    """A place for a figure with a row for each client; many of them are scrolled."""
    return st.container(height=SCROLLED) if rows.size > MOST_WHOLE else st.container()


def _selected(counts: LabelCounts, rows: IntArray) -> str:
    if rows.size == counts.num_clients:
        return ""
    return f"Shown are the {rows.size:,} of {counts.num_clients:,} clients with most synthetic images."


def _screen() -> Screen:
    return DARK if st.context.theme.type == "dark" else LIGHT


def _show_figures_of(counts: LabelCounts, found: Plan) -> None:
    summary = found.summary
    st.markdown(f"**{for_markdown(found.allocation.policy)}**")
    shown = st.container(horizontal=True)
    shown.metric("Images to generate", f"{found.allocation.generated:,}", border=True)
    shown.metric("Imbalance removed", f"{summary.removed:.2%}", border=True)
    shown.metric("Synthetic share", f"{summary.synthetic_share:.2%}", border=True)
    shown.metric("Clients that generate", f"{summary.receiving:,} of {counts.num_clients:,}", border=True)


def _show_most(place: Any, counts: LabelCounts, found: Plan) -> None:
    order = (-found.allocation.per_client).argsort(kind="stable")[:10]
    place.markdown("**Who gets most**")
    table = {
        "client": [printable(counts.client_name(row)) for row in order],
        "real": counts.sizes[order],
        "synthetic": found.allocation.per_client[order],
        "evenness": counts.entropy[order],
    }
    formats = {name: st.column_config.NumberColumn(format="localized") for name in ("real", "synthetic")}
    words = "Normalised entropy of the client's labels: 0 is one class only, 1 is balanced."
    formats["evenness"] = st.column_config.NumberColumn(format="%.2f", help=words)
    place.dataframe(table, hide_index=True, column_config=formats, height="content")


def _show_interval(curves: Curves) -> None:
    interval = curves.interval
    if interval:
        text = (
            f"Betas from {interval.lo:.2f} to {interval.hi:.2f} (shaded) remove at least half of the imbalance while "
        )
        st.caption(for_markdown(text + "less than a quarter of all data is synthetic."))
    else:
        st.caption(for_markdown(interval.reason))


def _show_prices(counts: LabelCounts, found: Plan, rate: float, side: int) -> None:
    chosen = found.allocation.policy
    compared = _rivals(counts, chosen)
    table = plan_result.prices(counts, compared, chosen, rate, side)
    formats = {name: st.column_config.NumberColumn(format="localized") for name in ("images", "most for one client")}
    formats |= {name: st.column_config.NumberColumn(format="%.1f") for name in ("removed %", "minutes", "MB")}
    st.dataframe(table, hide_index=True, column_config=formats, height="content", key="prices")
    st.caption(
        f"All policies with at most the images of this plan, between none and full balance; {rate:g} images a second, "
        f"{side} x {side} pixels uncompressed."
    )
    if remark := policy_left_out(compared):
        st.caption(for_markdown(remark))


def _show_downloads(federation: CountSource, choice: Choice, policy: Policy, allocation: Allocation) -> None:
    """Buttons, whose files are made when they are pressed, and the commands."""
    counts = federation.counts
    st.subheader("Download")
    files = st.container(horizontal=True)
    for ending, name in ((".csv", "CSV"), (".parquet", "Parquet"), (".json", "JSON")):
        content = partial(downloads.allocation_file, counts, allocation, ending)
        _download(files, f"Plan as {name}", content, f"plan{ending}")
    config = partial(run_config, federation, policy)
    _download(files, "Run config as TOML", config, "planned.toml")
    _download(files, "Counts as CSV", partial(downloads.counts_file, counts), "counts.csv")
    st.caption("The same numbers on the command line:")
    st.code(downloads.commands(federation, choice), language="sh", wrap_lines=True)


def _download(place: Any, label: str, content: Callable[[], bytes | str], name: str) -> None:
    place.download_button(label, content, name, on_click="ignore", key=f"download {name}")


def _runs_tab(folder: Path) -> None:
    with _explaining(st):
        watching = runs.any_under_way(runs.listed(folder).runs)
        st.fragment(_show_runs, run_every=REFRESH_SECONDS if watching else None)(folder, watching)


def _show_runs(folder: Path, watching: bool) -> None:
    """Show the runs; this part of the page refreshes by itself while a run is in progress."""
    with _explaining(st):
        found = runs.listed(folder)
        if runs.any_under_way(found.runs) is watching:
            _list_runs(folder, found, watching)
            return
    st.rerun()  # only the whole page can start or stop the refreshing


def _list_runs(folder: Path, found: runs.Listing, watching: bool) -> None:
    st.button("Refresh")
    if not found.runs:
        st.info(f"No run directories below {for_markdown(folder)}; make one with `fedeas run`.")
        return
    words = f"refreshed every {REFRESH_SECONDS:g} seconds" if watching else "none is in progress"
    older = f" The latest {len(found.runs):,} are listed, {found.left_out:,} older ones are not." * bool(found.left_out)
    st.caption(f"Run directories below {for_markdown(folder)}; {words}.{older}")
    wanted = st.text_input("Only runs whose name or policy contains", key="filter")
    shown = [run for run in found.runs if wanted.lower() in f"{run.name} {run.policy}".lower()]
    methods = runs.drawn_methods(shown)
    _chart(st, charts.accuracy(methods, _screen()), "accuracy")
    cut = f" Drawn are {charts.MOST_METHODS} of {len(methods):,} methods; filter the list to see others."
    st.caption(
        "Line: mean over the finished seeds of a method. Band: from the lowest to the highest seed. Dotted: unfinished "
        "runs, which end in a dot if they are in progress and in a cross if they were stopped."
        + cut
        * (len(methods) > charts.MOST_METHODS)
    )
    _show_table(shown)


def _show_table(shown: Sequence[ListedRun]) -> None:
    names = ("name", "policy", "algorithm", "seed", "state", "changed", "accuracy", "window", "latest")
    columns = {name: [getattr(run, name) for run in shown] for name in names}
    table = {
        name: [printable(value) if isinstance(value, str) else value for value in values]
        for name, values in columns.items()
    }
    formats = {
        "changed": st.column_config.DatetimeColumn("last round", format="distance"),
        "accuracy": st.column_config.NumberColumn(format="percent"),
        "window": st.column_config.TextColumn("mean of"),
        "latest": st.column_config.NumberColumn("last evaluation", format="percent"),
    }
    st.dataframe(table, hide_index=True, column_config=formats)


def _plot(place: Any, plot: Plot) -> None:
    st.html(html_plot.STYLE)
    place.html(html_plot.plot_html(plot, _screen()))


def _chart(place: Any, figure: Any, key: str) -> None:
    place.plotly_chart(figure, theme=None, config=QUIET, key=f"chart {key}")


if __name__ == "__main__":
    page()
