"""The tab with a plan: its controls, its key figures, where images go, what they cost, and downloads.

Its first functions show errors, tabs and figures on both tabs of the planner.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, get_args

import streamlit as st

from fedeas.calls.client_counts import NEEDS_IMAGES, CountSource, run_config
from fedeas.calls.plans import plan
from fedeas.core.arrays import IntArray
from fedeas.core.errors import FedEASError, log
from fedeas.core.foreign_text import for_markdown, printable
from fedeas.data.names import KNOWN
from fedeas.data.partition import PAPER_SEED
from fedeas.planning import scores
from fedeas.planning.advice import ADVICE
from fedeas.planning.beta import MAX_SHARE, MIN_REMOVED
from fedeas.planning.columns import ColumnNames
from fedeas.planning.counts import LabelCounts
from fedeas.planning.examples import DEFAULT, EXAMPLES
from fedeas.planning.plan import Plan
from fedeas.planning.policies import POLICIES, FedEAS, FullBalance, Policy
from fedeas.planning.policies.pool import PoolFill
from fedeas.planning.request import Limits, policy_left_out
from fedeas.views import figures as plots
from fedeas.views.charts import Spec
from fedeas.views.figures import DARK, LIGHT, Screen
from fedeas.views.web import MAX_MEGABYTES, choices, html_plot, plan_charts
from fedeas.views.web.choices import NO_LIMIT, SIZE_WORDS, Choice, Size, table_file

OWN = "classes of equal size"
PAPER, FILE, DRAW = "Paper", "My file", "Draw"
MOST_CLIENTS = 500  # rows of a figure, each with its name
MOST_BESIDE = 25  # classes of heat maps that are side by side
MOST_WHOLE, SCROLLED = 45, 820  # most clients of a figure without a scroll bar; pixels of a figure with one
QUIET: dict[str, Any] = {"displayModeBar": False, "scrollZoom": False}

cached: Callable[..., Any] = st.cache_data(
    show_spinner=False,
    max_entries=32,
    hash_funcs={LabelCounts: lambda counts: (counts.n.shape, counts.n.tobytes(), counts.clients, counts.classes)},
)
"""Keep the results of a function, since Streamlit runs the page again at every change."""

_paper, _drawn, _drawn_from = cached(choices.paper), cached(choices.drawn), cached(choices.drawn_from)
_uploaded = cached(choices.read_upload)
_curves, _plan, _rivals = cached(plan_charts.curves), cached(plan), cached(plan_charts.rivals)


@contextmanager
def explaining(place: Any) -> Iterator[None]:
    """Show an error as one line on the page, and in full only in the server's log."""
    try:
        yield
    except FedEASError as error:
        place.error(for_markdown(error))
    except Exception as error:
        log.exception("the page could not be shown")
        place.error(for_markdown(f"this cannot be shown ({type(error).__name__}); the server's log says more"))


def show_tabs(key: str, tabs: Mapping[str, Callable[[], None]]) -> None:
    """Tabs by their names, of which only the open one is computed."""
    for tab, show in zip(st.tabs(list(tabs), key=key, on_change="rerun"), tabs.values(), strict=True):
        if tab.open:
            with tab:
                show()


def screen() -> Screen:
    """The colours of the user's screen."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def show_chart(place: Any, figure: Spec, key: str) -> None:
    """Show a figure of Plotly."""
    font = {**figure["layout"]["font"], "family": '"Source Sans", sans-serif'}  # the page's own
    figure["layout"] |= {"template": "none", "dragmode": False, "font": font}
    place.plotly_chart(figure, theme=None, config=QUIET, key=f"chart {key}")


def show_plan_page() -> None:
    """Controls on the left, the plan on the right."""
    controls, results = st.columns([1, 2.6], gap="large")
    with explaining(results):
        with controls:
            federation = choose_federation()
        if federation is None:
            results.info("Upload a table of label counts to see its plan.")
            return
        counts = federation.counts
        with controls:
            choice = choose_policy_and_size(counts)
            st.subheader("3. Prices")
            rate = choice.limits.images_per_second or _ask_rate()
            side = int(st.number_input("Pixels along a side", 8, 2048, 32, help="Colour, 3 bytes a pixel.", key="side"))
        policy = choice.resolved(counts)
        found = _plan(counts, policy.spec)
        shown = ShownPlan(found, plots.most(found.per_client, MOST_CLIENTS))
        with results:
            st.markdown(f"**{for_markdown(found.allocation.policy)}**")
            figures = {
                "Images to generate": f"{found.allocation.generated:,}",
                "Imbalance removed": f"{found.summary.removed:.2%}",
                "Synthetic share": f"{found.summary.synthetic_share:.2%}",
                "Clients that generate": f"{found.summary.receiving:,} of {counts.num_clients:,}",
            }
            place = st.container(horizontal=True)
            for name, value in figures.items():
                place.metric(name, value, border=True)
            tabs: dict[str, Callable[[], None]] = {
                "Where images go": shown.where,
                "Clients": shown.clients,
                "Budget": shown.budget,
                "Prices": lambda: shown.prices(rate, side),
            }
            show_tabs("view", tabs)
            shown.downloads(federation, choice, policy)


def choose_federation() -> CountSource | None:
    """The label counts that the user chooses; None until a file is uploaded."""
    st.subheader("1. Label counts")
    source = st.segmented_control("Where from?", [PAPER, FILE, DRAW], default=PAPER, required=True, key="source")
    if source == PAPER:
        titles = {example.id: example.title for example in EXAMPLES}
        words = "K clients; a smaller alpha means more skew. The clients' training parts are counted."
        first = [*titles].index(DEFAULT)
        found: CountSource = _paper(
            st.selectbox("Partition", [*titles], first, titles.__getitem__, help=words, key="paper")
        )
    elif source == FILE:
        file = st.file_uploader(
            "CSV, Parquet or NPZ", ["csv", "parquet", "npz"], max_upload_size=MAX_MEGABYTES, key="file"
        )
        st.caption(
            "A row for each client with a column of counts for each class; a row for each client and class with a "
            "count; a row for each image with its client and label; or a split of `fedeas partition --out split.npz`. "
            "The file stays on this machine."
        )
        words = "Only for rows of images whose labels are numbers, if no client has some class."
        classes = int(st.number_input("Number of classes (0: those that occur)", 0, choices.MAX_CLASSES, help=words))
        with st.expander("Columns, if they are not recognised"):
            columns = [
                st.text_input(f"Column of the {what}", key=f"{what} column") for what in ("client", "label", "count")
            ]
        if file is None:
            return None
        named = ColumnNames(*(name or None for name in columns))
        found = _uploaded(file.name, file.getvalue(), classes or None, named)
    else:
        sizes = [*(name for name in KNOWN if name != "digits"), OWN]
        dataset = st.selectbox("Class sizes of", sizes, key="dataset")
        left, right = st.columns(2)
        clients = int(left.number_input("Clients", 1, 500, 20, key="clients"))
        words = "Dirichlet concentration: 0.05 is extreme skew, 100 is almost none."
        alpha = float(right.number_input("Alpha", 0.01, 100.0, 0.1, 0.05, help=words, key="alpha"))
        seed = int(left.number_input("Seed", 0, 10**6, PAPER_SEED, key="seed"))
        if dataset == OWN:
            many = int(right.number_input("Classes", 2, 200, 10, key="classes"))
            each = int(left.number_input("Images of each class", 10, 10_000, 1000, key="each"))
            found = _drawn(clients, many, each, alpha, seed)
        else:
            found = _drawn_from(dataset, clients, alpha, seed)
    counts = found.counts
    st.caption(f"Clients: {counts.num_clients:,}, classes: {counts.num_classes:,}, real images: {counts.total:,}")
    if found.how:
        st.caption(for_markdown(f"Read as {found.how}."))
    return found


def choose_policy_and_size(counts: LabelCounts) -> Choice:
    """The policy, with the size of its budget."""
    st.subheader("2. Policy")
    usable = [name for name, kind in POLICIES.items() if kind.suits(counts)]
    policy = spec = st.selectbox("Who gets images?", usable, key="policy")
    st.caption(POLICIES[policy].description)
    with st.expander("Policies to compare, by our experiments"):
        st.caption("\n".join(f"- {each}" for each in ADVICE))
    if policy == "cost-aware":
        words = "One image is worth at most 4 / (number of classes); at a higher price nothing is generated."
        price = float(st.slider("Price of an image", 0.001, 0.4, 0.1, 0.001, help=words))
        spec = f"cost-aware(price={price:.12g})"
    if policy == "pool":
        words = "mean: to the client's mean class size; max: to its largest class."
        question = "Up to where do clients fill their classes?"
        fill = st.selectbox(question, get_args(PoolFill), help=words, key="fill")
        spec = "pool" if fill == "mean" else f"pool(fill={fill})"
    if not (issubclass(POLICIES[policy], FedEAS) or POLICIES[policy].budget_field):
        return Choice(spec, NO_LIMIT)

    size = Size(st.selectbox("How many images in all?", [str(each) for each in Size], key="size"))
    match size:
        case Size.BETA:
            limits = Limits(beta=float(st.slider("Beta", 0.1, 40.0, 12.0, 0.1, key="beta")))
        case Size.TOTAL:
            limits = Limits(total=int(st.number_input("Images at most", 0, 10**8, 5000, 500, key="total")))
        case Size.MINUTES:
            minutes = float(st.number_input("Minutes at most", 0.0, 1e5, 10.0, 1.0, key="minutes"))
            limits = Limits(minutes=minutes, images_per_second=_ask_rate())
        case Size.SHARE:
            limits = Limits(max_share=st.slider("Synthetic share below, %", 1, 95, 25, key="share") / 100)
        case Size.REMOVED:
            limits = Limits(min_removed=st.slider("Imbalance removed at least, %", 1, 99, 50, key="removed") / 100)
        case Size.AUTO:
            limits = Limits(auto=True)
    # Sizes are defined for FedEAS.
    spent = "all of it" if size in (Size.TOTAL, Size.MINUTES, Size.SHARE) else "as many images as FedEAS then does"
    st.caption(SIZE_WORDS[size] if policy == "fedeas" else f"{SIZE_WORDS[size]} {policy} spends {spent}.")
    return Choice(spec, limits)


def _ask_rate() -> float:
    return float(st.number_input("Images per second", 0.01, 1e5, 20.0, 1.0, help="Of your generator.", key="rate"))


class ShownPlan(NamedTuple):
    """A plan, and the rows of the clients that its figures show."""

    plan: Plan
    rows: IntArray

    @property
    def selected(self) -> str:
        """Which clients are shown, if not all."""
        shown, clients = self.rows.size, self.plan.counts.num_clients
        return "" if shown == clients else f"Shown are the {shown:,} of {clients:,} clients with most synthetic images."

    def place(self) -> Any:
        """A place for a figure with a row for each client; many of them are scrolled."""
        return st.container(height=SCROLLED) if self.rows.size > MOST_WHOLE else st.container()

    def where(self) -> None:
        """Heat maps of the real and the synthetic images."""
        counts, rows = self.plan.counts, self.rows
        tables = {"Real images": counts.n, "Synthetic images": self.plan.n}
        largest = max(int(table[rows].max()) for table in tables.values())
        colours = screen()
        if html_plot.is_small(rows.size, counts.num_classes):
            st.html(html_plot.STYLE)
            for place, (title, table) in zip(st.columns(2), tables.items(), strict=True):
                place.html(html_plot.heat_table(counts, table, rows, largest, title, colours))
        else:
            beside = counts.num_classes <= MOST_BESIDE  # more classes need the whole width for their names
            places = self.place().columns(2) if beside else (self.place(), self.place())
            for place, (title, table) in zip(places, tables.items(), strict=True):
                place.markdown(f"**{title}**")
                show_chart(place, plan_charts.tall_heat_map(counts, table, rows, largest, colours), title)
        st.caption(f"One colour scale for both; blank means none. {self.selected}")

    def clients(self) -> None:
        """The images of each client and its share of the imbalance, those who get most first."""
        counts, allocation, demand = self.plan.counts, self.plan.allocation, FullBalance().allocate(self.plan.counts)
        parts = scores.client_imbalance(counts)
        rows = self.rows[(-allocation.per_client[self.rows]).argsort(kind="stable")]
        images = {"this plan": allocation.per_client[rows], "full balance": demand.per_client[rows]}
        table = {
            "client": [printable(counts.client_name(row)) for row in rows],
            "real": counts.sizes[rows],
            "evenness": counts.entropy[rows],
            "imbalance": parts[rows] / (parts.sum() or 1),
            **images,
        }
        words = "Normalised entropy of the client's labels: 0 is one class only, 1 is balanced."
        formats = _formats("localized", "real") | _formats("%.2f", "evenness", help=words)
        formats |= _formats("percent", "imbalance", help="The client's share of the imbalance.")
        most = max(1, *(int(each.max()) for each in images.values()))
        formats |= {
            name: st.column_config.ProgressColumn(name, format="localized", min_value=0, max_value=most)
            for name in images
        }
        st.dataframe(table, hide_index=True, column_config=formats, key="clients")
        if self.selected:
            st.caption(self.selected)

    def budget(self) -> None:
        """What other budgets and policies remove."""
        found = _curves(self.plan.counts)
        plan, interval = self.plan.allocation, found.interval
        plot = plan_charts.trade_off(found, plan.policy, plan.total, self.plan.summary.removed)
        st.html(html_plot.STYLE)
        st.html(html_plot.plot_html(plot, screen()))
        text = interval.reason or (
            f"Betas from {interval.lo:.2f} to {interval.hi:.2f} (shaded) remove at least {MIN_REMOVED:.0%} of the "
            f"imbalance while less than {MAX_SHARE:.0%} of all data is synthetic."
        )
        st.caption(for_markdown(text))

    def prices(self, rate: float, side: int) -> None:
        """What the images of all policies cost, at a rate of images a second and at their size."""
        counts, chosen = self.plan.counts, self.plan.allocation.policy
        compared = _rivals(counts, chosen)
        table = plan_charts.prices(counts, compared, chosen, rate, side)
        formats = _formats("localized", "images", "most for one client")
        formats |= _formats("%.1f", "removed %", "minutes", "MB")
        st.dataframe(table, hide_index=True, column_config=formats, height="content", key="prices")
        st.caption(
            f"All policies with at most the images of this plan, between none and full balance; {rate:g} images a "
            f"second, {side} x {side} pixels uncompressed."
        )
        if remark := policy_left_out(compared):
            st.caption(for_markdown(remark))

    def downloads(self, federation: CountSource, choice: Choice, policy: Policy) -> None:
        """Buttons, whose files are made when they are pressed, and the commands."""
        counts, allocation = federation.counts, self.plan.allocation
        files: dict[str, tuple[str, Callable[[], bytes | str]]] = {
            f"Plan as {name}": (f"plan.{name.lower()}", partial(table_file, counts, allocation, f".{name.lower()}"))
            for name in ("CSV", "Parquet")
        }
        if federation.config:
            files["Run config as TOML"] = "planned.toml", partial(run_config, federation, policy)
        files["Counts as CSV"] = "counts.csv", partial(table_file, counts)
        st.subheader("Download")
        place = st.container(horizontal=True)
        for label, (name, content) in files.items():
            place.download_button(label, content, name, on_click="ignore", key=f"download {name}")
        if not federation.config:
            st.caption(for_markdown(f"No run config: {NEEDS_IMAGES}."))
        st.caption("The same numbers on the command line:")
        st.code(choice.commands(federation), language="sh", wrap_lines=True)


def _formats(form: str, *columns: str, help: str | None = None) -> dict[str, Any]:
    """How a table shows the numbers of these columns."""
    return dict.fromkeys(columns, st.column_config.NumberColumn(format=form, help=help))
