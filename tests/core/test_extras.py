"""What the package says to install is what its extras install."""

import re
import tomllib
from pathlib import Path

import pytest

from fedeas.core.errors import PACKAGES, extra_for

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
IMPORTED_AS = {"scikit-learn": "sklearn", "pillow": "PIL", "mlflow-skinny": "mlflow"}


def test_every_package_of_an_extra_is_known_by_an_extra():
    for extra in PACKAGES:
        installed = {re.match(r"[\w-]+", each)[0] for each in PROJECT["optional-dependencies"][extra]}
        imported = {IMPORTED_AS.get(name, name) for name in installed - {"fedeas"}}
        assert imported <= {*PACKAGES[extra], *PACKAGES["train"]}


def test_an_installed_package_that_fails_says_itself_why():
    with pytest.raises(ImportError, match="cannot import name 'nothing_of_this_name'"), extra_for("a test"):
        from numpy import nothing_of_this_name  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match="no_such_package"), extra_for("a test"):
        import no_such_package  # noqa: F401
