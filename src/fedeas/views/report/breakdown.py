"""Accuracy by class and by client, from the records of finished runs.

Runs record the accuracy of each class on the server's test set. A client's accuracy is the mean of these, weighted by
the client's own mix of classes: what the global model reaches on test images in the proportions that the client holds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas.planning.counts import LabelCounts
from fedeas.runs.accuracy_curves import RoundRange
from fedeas.runs.comparison import Measured
from fedeas.views.report.methods import MethodRuns, RunSnapshot
from fedeas.views.report.samples import class_names

Accuracies = NDArray[np.float64]


class Breakdown(NamedTuple):
    """Accuracies of a method's finished seeds, in percent: seeds x classes, and of each seed its clients, worst first.

    A class without test images is not a number; `clients` is empty if the label counts are not known.
    """

    method: MethodRuns
    names: tuple[str, ...]
    classes: Accuracies
    clients: list[Accuracies]

    @property
    def mean_classes(self) -> Accuracies:
        """Mean over seeds of the accuracy of each class."""
        return np.asarray(self.classes.mean(axis=0))

    @property
    def mean_clients(self) -> Accuracies:
        """Mean over seeds of the worst client, the second worst, and so on.

        Seeds with another number of clients than the first are left out.
        """
        alike = [each for each in self.clients if len(each) == len(self.clients[0])]
        return np.asarray(np.mean(alike, axis=0))

    def tenth(self, worst: bool) -> Measured | None:
        """The mean of the worst or of the best tenth of the clients, over seeds."""
        sizes = [-(-len(each) // 10) for each in self.clients]
        tenths = [
            each[:size] if worst else each[len(each) - size :] for each, size in zip(self.clients, sizes, strict=True)
        ]
        return Measured.of([float(each.mean()) for each in tenths])

    @property
    def average_client(self) -> Measured | None:
        """The mean of all clients, each of which counts the same, over seeds."""
        return Measured.of([float(each.mean()) for each in self.clients])


def breakdown_of(method: MethodRuns) -> Breakdown | None:
    """The accuracies of a method; None if no finished run has recorded them."""
    runs = [each for each in method.runs if each.finished]
    found = [(each, classes) for each in runs if (classes := class_accuracy(each)) is not None]
    if not found:
        return None
    clients = [client_accuracy(each.planned[0], classes) for each, classes in found if each.planned is not None]
    table = 100 * np.array([classes for _, classes in found])
    names = class_names([each for each, _ in found], table.shape[1])
    return Breakdown(method, tuple(names), table, [100 * each for each in clients])


def class_accuracy(run: RunSnapshot) -> Accuracies | None:
    """Accuracy of each class, averaged over the evaluations in the rounds that the run's accuracy covers."""
    assert run.summary is not None
    first, last = RoundRange(*run.summary["window"])
    rows = [record.get("class_accuracy") for record in run.rounds if first <= record["round"] <= last]
    tested = [row for row in rows if row is not None]
    if not tested:
        return None
    found = np.array(tested, dtype=float).mean(axis=0)
    missing = run.planned[0].num_classes - len(found) if run.planned is not None else 0
    return np.pad(found, (0, max(missing, 0)), constant_values=np.nan)  # records may end with the last tested class


def client_accuracy(counts: LabelCounts, classes: Accuracies) -> Accuracies:
    """Accuracy on each client's own mix of classes, worst first; clients without a tested class are left out.

    >>> client_accuracy(LabelCounts([[8, 2], [0, 5]]), np.array([0.5, 1.0])).tolist()
    [0.6, 1.0]
    """
    tested = np.where(np.isnan(classes), 0, counts.n)
    held = tested.sum(axis=1)
    right = tested @ np.nan_to_num(classes)
    return np.sort(right[held > 0] / held[held > 0])
