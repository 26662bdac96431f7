"""The errors that FedEAS raises on purpose: one line each, with the place and the remedy."""


class FedEASError(Exception):
    """Base of all errors that FedEAS raises on purpose; the command line shows them without a traceback."""

    exit_code = 2


class InputError(FedEASError, ValueError):
    """Counts, labels or a file that cannot be used.

    `row` starts at 0 and is shown before the message, starting at 1. Code that reads a file in parts can shift it.
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


class StoppedError(FedEASError):
    """The user stopped the work (Ctrl-C). What is done is kept."""

    exit_code = 130


class RunError(FedEASError, RuntimeError):
    """A run had to stop after its start. Its records are kept, and it can resume from them."""

    exit_code = 3
