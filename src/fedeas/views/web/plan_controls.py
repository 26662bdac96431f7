"""The controls of the page with a plan: label counts, the policy and its size, and prices."""

from __future__ import annotations

from typing import get_args

import streamlit as st

from fedeas.calls.client_counts import CountSource
from fedeas.core.foreign_text import for_markdown
from fedeas.data.known import KNOWN
from fedeas.data.partition import PAPER_SEED
from fedeas.planning.advice import ADVICE
from fedeas.planning.columns import ColumnNames
from fedeas.planning.counts import LabelCounts
from fedeas.planning.examples import DEFAULT, EXAMPLES
from fedeas.planning.policies import POLICIES
from fedeas.planning.policies.pool import PoolFill
from fedeas.planning.request import Limits
from fedeas.views.web import sources
from fedeas.views.web.choices import NO_LIMIT, SIZE_WORDS, Choice, Size, takes_budget
from fedeas.views.web.page_parts import cached

OWN = "classes of equal size"
PAPER, FILE, DRAW = "Paper", "My file", "Draw"

_paper, _drawn, _drawn_from = cached(sources.paper), cached(sources.drawn), cached(sources.drawn_from)
_uploaded = cached(sources.read_upload)


def choose_federation() -> CountSource | None:
    """The label counts that the user chooses; None until a file is uploaded."""
    st.subheader("1. Label counts")
    source = st.segmented_control("Where from?", [PAPER, FILE, DRAW], default=PAPER, required=True, key="source")
    found = {PAPER: _from_paper, FILE: _from_file, DRAW: _from_draw}[source]()
    if found is not None:
        counts = found.counts
        st.caption(f"Clients: {counts.num_clients:,}, classes: {counts.num_classes:,}, real images: {counts.total:,}")
        if found.how:
            st.caption(for_markdown(f"Read as {found.how}."))
    return found


def _from_paper() -> CountSource:
    titles = {example.id: example.title for example in EXAMPLES}
    words = "K clients; a smaller alpha means more skew. The clients' training parts are counted."
    names = list(titles)
    chosen = st.selectbox(
        "Partition", names, names.index(DEFAULT), format_func=titles.__getitem__, help=words, key="paper"
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
    seed = int(left.number_input("Seed", 0, 10**6, PAPER_SEED, key="seed"))
    if dataset != OWN:
        return _drawn_from(dataset, clients, alpha, seed)  # type: ignore[no-any-return]
    classes = int(right.number_input("Classes", 2, 200, 10, key="classes"))
    each = int(left.number_input("Images of each class", 10, 10_000, 1000, key="each"))
    return _drawn(clients, classes, each, alpha, seed)  # type: ignore[no-any-return]


def choose_policy_and_size(counts: LabelCounts) -> Choice:
    """The policy, with the size of its budget."""
    st.subheader("2. Policy")
    usable = [name for name, kind in POLICIES.items() if kind.suits(counts)]
    policy = st.selectbox("Who gets images?", usable, key="policy")
    st.caption(POLICIES[policy].description)
    with st.expander("Policies to compare, by our experiments"):
        st.caption("\n".join(f"- {each}" for each in ADVICE))
    if policy == "cost-aware":
        words = "One image is worth at most 4 / (number of classes); at a higher price nothing is generated."
        return Choice(policy, price=float(st.slider("Price of an image", 0.001, 0.4, 0.1, 0.001, help=words)))
    fill: PoolFill = "mean"
    if policy == "pool":
        words = "mean: to the client's mean class size; max: to its largest class."
        question = "Up to where do clients fill their classes?"
        fill = st.selectbox(question, get_args(PoolFill), help=words, key="fill")
    return Choice(policy, _choose_limits(policy) if takes_budget(policy) else NO_LIMIT, fill=fill)


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


def choose_prices(choice: Choice) -> tuple[float, int]:
    """Images a second, and pixels along a side of an image."""
    st.subheader("3. Prices")
    given = choice.limits.images_per_second if takes_budget(choice.policy) else None
    rate = _rate() if given is None else given
    side = int(st.number_input("Pixels along a side", 8, 2048, 32, help="Colour, 3 bytes a pixel.", key="side"))
    return rate, side
