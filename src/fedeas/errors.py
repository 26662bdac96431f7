"""What can go wrong, each as one line that names the place and the remedy."""


class FedEASError(Exception):
    """Base of all errors that FedEAS raises on purpose; the command line shows them without a traceback."""

    exit_code = 2


class InputError(FedEASError, ValueError):
    """Counts, labels or a file that cannot be used as they are.

    `row` counts from 0 and is shown, counted from 1, before the message; a reader of files in parts can shift it.
    """

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.row = row

    def __str__(self) -> str:
        return self.message if self.row is None else f"row {self.row + 1:,}{self.message}"


class PolicyError(FedEASError, ValueError):
    """A hyperparameter out of range, or a budget that the policy cannot spend."""


class SpecError(FedEASError, ValueError):
    """A policy description such as ``fedeas(beta=12)`` that cannot be read."""


class RunError(FedEASError, RuntimeError):
    """A run that had to stop after it had begun; what it recorded is kept, and it can go on from there."""

    exit_code = 3
