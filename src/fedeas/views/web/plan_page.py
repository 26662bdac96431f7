"""The page with a plan: its key figures, where images go, what they cost, and downloads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import streamlit as st

from fedeas.calls.client_counts import NEEDS_IMAGES, CountSource, run_config
from fedeas.calls.plans import plan
from fedeas.core.arrays import IntArray
from fedeas.core.foreign_text import for_markdown, printable
from fedeas.planning.beta import MAX_SHARE, MIN_REMOVED
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.plan import Plan
from fedeas.planning.policies import Policy
from fedeas.planning.request import policy_left_out
from fedeas.views import figures as plots
from fedeas.views.web import charts, downloads, heat_table, plan_charts, plan_result
from fedeas.views.web.choices import Choice
from fedeas.views.web.page_parts import cached, explaining, screen, show_chart, show_plot, show_tabs
from fedeas.views.web.plan_controls import choose_federation, choose_policy_and_size, choose_prices

MOST_BESIDE = 25  # classes of heat maps that are side by side
MOST_WHOLE, SCROLLED = 45, 820  # most clients of a figure without a scroll bar; pixels of a figure with one

_curves, _plan, _rivals = cached(plan_result.curves), cached(plan), cached(plan_result.rivals)


def show_plan_page() -> None:
    """Controls on the left, the plan on the right."""
    controls, results = st.columns([1, 2.6], gap="large")
    with explaining(results):
        with controls:
            federation = choose_federation()
        if federation is None:
            results.info("Upload a table of label counts to see its plan.")
            return
        with controls:
            choice = choose_policy_and_size(federation.counts)
            rate, side = choose_prices(choice)
        policy = choice.resolved(federation.counts)
        found = _plan(federation.counts, policy.spec)
        with results:
            _show(federation.counts, found, rate, side)
            _show_downloads(federation, choice, policy, found.allocation)


def _show(counts: LabelCounts, found: Plan, rate: float, side: int) -> None:
    summary = found.summary
    st.markdown(f"**{for_markdown(found.allocation.policy)}**")
    shown = st.container(horizontal=True)
    shown.metric("Images to generate", f"{found.allocation.generated:,}", border=True)
    shown.metric("Imbalance removed", f"{summary.removed:.2%}", border=True)
    shown.metric("Synthetic share", f"{summary.synthetic_share:.2%}", border=True)
    shown.metric("Clients that generate", f"{summary.receiving:,} of {counts.num_clients:,}", border=True)
    rows = plots.most(found.allocation.per_client, charts.MOST_CLIENTS)
    views = {
        "Where images go": partial(_show_where, counts, found, rows),
        "Clients": partial(_show_clients, counts, found, rows),
        "Budget": partial(_show_budget, counts, found),
        "Prices": partial(_show_prices, counts, found, rate, side),
    }
    show_tabs("view", views)


def _show_where(counts: LabelCounts, found: Plan, rows: IntArray) -> None:
    tables = {"Real images": counts.n, "Synthetic images": found.allocation.n}
    largest = max(int(table[rows].max()) for table in tables.values())
    colours = screen()
    if heat_table.is_small(rows.size, counts.num_classes):
        st.html(heat_table.STYLE.format(**colours._asdict()))
        for place, (title, table) in zip(st.columns(2), tables.items(), strict=True):
            place.html(heat_table.heat_table(counts, table, rows, largest, title, colours))
        st.html(heat_table.heat_scale(largest, colours))
    else:
        beside = counts.num_classes <= MOST_BESIDE  # more classes need the whole width for their names
        places = _scrolled(rows).columns(2) if beside else (_scrolled(rows), _scrolled(rows))
        for place, (title, table) in zip(places, tables.items(), strict=True):
            show_chart(place, charts.heat_map(counts, table, rows, largest, title, colours), title)
    st.caption(f"One colour scale for both; blank means none. {_selected(counts, rows)}")


def _show_clients(counts: LabelCounts, found: Plan, rows: IntArray) -> None:
    demand = _curves(counts).demand
    with _scrolled(rows):
        show_plot(st, plan_charts.demand_dots(counts, found.allocation, demand, rows))
    if selected := _selected(counts, rows):
        st.caption(selected)
    left, right = st.columns([1.6, 1])
    show_plot(left, plan_charts.concentration(counts, found.allocation))
    order = (-found.allocation.per_client).argsort(kind="stable")[:10]
    right.markdown("**Who gets most**")
    table = {
        "client": [printable(counts.client_name(row)) for row in order],
        "real": counts.sizes[order],
        "synthetic": found.allocation.per_client[order],
        "evenness": counts.entropy[order],
    }
    formats = {name: st.column_config.NumberColumn(format="localized") for name in ("real", "synthetic")}
    words = "Normalised entropy of the client's labels: 0 is one class only, 1 is balanced."
    formats["evenness"] = st.column_config.NumberColumn(format="%.2f", help=words)
    right.dataframe(table, hide_index=True, column_config=formats, height="content")


def _show_budget(counts: LabelCounts, found: Plan) -> None:
    curves = _curves(counts)
    point = (found.allocation.policy, found.allocation.total, found.summary.removed)
    show_plot(st, plan_charts.trade_off(curves, *point))
    interval = curves.interval
    text = interval.reason or (
        f"Betas from {interval.lo:.2f} to {interval.hi:.2f} (shaded) remove at least {MIN_REMOVED:.0%} of the "
        f"imbalance while less than {MAX_SHARE:.0%} of all data is synthetic."
    )
    st.caption(for_markdown(text))


def _scrolled(rows: IntArray) -> Any:
    """A place for a figure with a row for each client; many of them are scrolled."""
    return st.container(height=SCROLLED) if rows.size > MOST_WHOLE else st.container()


def _selected(counts: LabelCounts, rows: IntArray) -> str:
    if rows.size == counts.num_clients:
        return ""
    return f"Shown are the {rows.size:,} of {counts.num_clients:,} clients with most synthetic images."


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
    if federation.config:
        _download(files, "Run config as TOML", partial(run_config, federation, policy), "planned.toml")
    _download(files, "Counts as CSV", partial(downloads.counts_file, counts), "counts.csv")
    if not federation.config:
        st.caption(for_markdown(f"No run config: {NEEDS_IMAGES}."))
    st.caption("The same numbers on the command line:")
    st.code(downloads.commands(federation, choice), language="sh", wrap_lines=True)


def _download(place: Any, label: str, content: Callable[[], bytes | str], name: str) -> None:
    place.download_button(label, content, name, on_click="ignore", key=f"download {name}")
