"""Commands are run in this process."""

import pytest

from fedeas.cli import main


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a command; give back exit code, output and errors."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments):
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return call
