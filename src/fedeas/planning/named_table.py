"""A table of clients x classes that may have names: how it calls its rows and columns, and how a notebook shows it."""

from __future__ import annotations

from typing import Any

from fedeas.core.arrays import IntArray
from fedeas.core.errors import InputError
from fedeas.core.foreign_text import for_html
from fedeas.planning.validation import Names

MOST_SHOWN = 30
"""Clients and classes that a notebook shows."""


class NamedTable:
    """What label counts and allocations have in common."""

    n: IntArray
    clients: Names
    classes: Names

    def client_name(self, row: int) -> str:
        """The client's given name, or its row number."""
        return str(row) if self.clients is None else self.clients[row]

    def class_name(self, column: int) -> str:
        """The class's given name, or its column number."""
        return str(column) if self.classes is None else self.classes[column]

    @property
    def client_names(self) -> tuple[str, ...]:
        """The names of all clients, or their row numbers."""
        return tuple(map(self.client_name, range(self.n.shape[0])))

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of all classes, or their column numbers."""
        return tuple(map(self.class_name, range(self.n.shape[1])))

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame, with the names of clients and classes.

        >>> from fedeas import LabelCounts
        >>> LabelCounts([[5, 2]], ["ann"], ["cat", "dog"]).to_frame().loc["ann"].tolist()
        [5, 2]
        """
        pandas = import_pandas("to_frame")
        index, columns = (None if names is None else list(names) for names in (self.clients, self.classes))
        return pandas.DataFrame(self.n.copy(), index=index, columns=columns)

    def _repr_html_(self) -> str:
        """The table in a notebook; a large one is cut off."""
        head = "".join(f"<th>{for_html(name)}</th>" for name in ("", *self.class_names[:MOST_SHOWN], "total"))
        rows = [
            f"<th>{for_html(self.client_name(place))}</th>"
            + "".join(f"<td>{count:,}</td>" for count in (*row[:MOST_SHOWN], row.sum()))
            for place, row in enumerate(self.n[:MOST_SHOWN])
        ]
        cut = f"<p>{shape_text(self.n)}</p>" if max(self.n.shape) > MOST_SHOWN else ""
        body = "</tr><tr>".join(rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody><tr>{body}</tr></tbody></table>{cut}"


def shape_text(n: IntArray) -> str:
    """The size of a table, in words."""
    return f"{n.shape[0]} clients x {n.shape[1]} classes"


def import_pandas(user: str) -> Any:
    """The package pandas, which is optional; `user` is named in the error."""
    try:
        import pandas
    except ImportError:
        raise InputError(f"{user} needs pandas; run pip install pandas") from None
    return pandas
