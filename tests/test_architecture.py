"""Outside packages are imported only where they belong, and planning stays light.

Which rooms may import which others stands in pyproject.toml, and `make check` holds the code to it.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedeas

ROOT = Path(fedeas.__file__).parent
REPOSITORY = Path(__file__).parents[1]

# Rooms or modules that may import a package; the standard library and numpy are everyone's.
ALLOWED = {
    "torch": {
        "algorithms", "calls.augmentation", "calls.images", "cli.generator", "core.devices",
        "data.client", "fast", "federation", "flower", "generators", "gpu", "models", "runs.tracking.to_tensorboard",
        "testing.algorithms",
    },
    "triton": {"gpu"},
    "flwr": {"flower"},
    "filelock": {"core.locks"},
    "opacus": {"flower.privacy"},
    "jinja2": {"views.report"},
    "markupsafe": {"views.report"},
    "matplotlib": {"views.figures"},
    "pyarrow": {"planning.arrow_tables", "data.parquet", "calls.plan_images", "runs.packed"},
    "pandas": {"planning.counts"},
    "PIL": {"calls.augmentation", "data.cache", "generators.quality.grid"},
    "scipy": {"generators.quality.membership", "runs.comparison"},
    "sklearn": {"data.sources"},
    "huggingface_hub": {"core.weight_files", "data.sources"},
    "pydantic": {"config", "runs.store"},
    "typer": {"cli"},
    "rich": {"cli"},
    "streamlit": {"views.web"},
    "starlette": {"views.web"},  # comes with streamlit
    "plotly": set(),
    "safetensors": {"core.weight_files", "models"},
    "diffusers": {"generators.diffusion", "generators.text", "gpu.denoiser"},
    "transformers": {"generators.text"},
    "mlflow": {"runs.tracking.to_mlflow"},
    "wandb": {"runs.tracking.to_wandb"},
    "torchmetrics": {"generators.quality.metrics"},
}  # fmt: skip


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if name != "__init__":
            yield name, ast.parse(path.read_text())


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def test_outside_packages_are_imported_only_where_they_belong():
    standard = set(sys.stdlib_module_names)
    for name, tree in modules():
        for package in {target.partition(".")[0] for target in imports(tree)} - standard - {"fedeas", "numpy"}:
            assert any(f"{name}.".startswith(f"{room}.") for room in ALLOWED[package]), f"{name} imports {package}"


PUBLIC_FLOWER = {"flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.simulation"}


@pytest.mark.parametrize("folder", ["src/fedeas", "deploy", "tests", "benchmarks", "examples", "reproduction"])
def test_only_the_documented_part_of_flower_is_imported(folder):
    for path in sorted((REPOSITORY / folder).rglob("*.py")):
        used = {each for each in imports(ast.parse(path.read_text())) if each.partition(".")[0] == "flwr"}
        private = {each for each in used if not any(f"{each}.".startswith(f"{known}.") for known in PUBLIC_FLOWER)}
        assert not private, f"{path} imports {private}"


def test_the_deployment_does_not_import_flower_at_all():
    for path in (REPOSITORY / "deploy").rglob("*.py"):
        assert not any(each.partition(".")[0] == "flwr" for each in imports(ast.parse(path.read_text()))), path


def test_importing_the_core_loads_numpy_and_nothing_heavier():
    script = "import sys, fedeas; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    outside = set(loaded) - set(sys.stdlib_module_names) - {"fedeas", "__main__"}
    heavy = {"torch", "pyarrow", "matplotlib", "typer", "rich", "pydantic", "pandas", "scipy"}
    assert "numpy" in outside
    assert not heavy & outside


def test_planning_on_the_command_line_does_not_wait_for_torch_nor_flower_nor_the_page():
    script = "import sys, fedeas.cli; print(*{'torch', 'flwr', 'streamlit', 'plotly'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == []


def test_a_run_does_not_wait_for_libraries_that_only_diffusion_needs():
    script = "import sys, fedeas.federation.run, fedeas.flower.app; print('diffusers' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == ["False"]


WITHOUT_EXTRAS = """
import sys
for name in ("torch", "safetensors", "diffusers", "huggingface_hub", "torchmetrics", "sklearn", "flwr", "streamlit"):
    sys.modules[name] = None  # as if it were not installed
from fedeas.cli import main
main(sys.argv[1:])
"""


def without_extras(*arguments, package="fedeas.cli"):
    script = WITHOUT_EXTRAS.replace("fedeas.cli", package)
    return subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True)


def test_a_plain_installation_plans_and_checks_the_papers_counts():
    assert "13,437" in without_extras("plan", "--example").stdout
    study = "reproduction.command"
    assert without_extras("fig2", "--help", package=study).returncode == 0
    assert "not run" in without_extras("table2", "--show", "--markdown", package=study).stdout


def test_a_plain_installation_says_what_training_needs(tmp_path):
    done = without_extras("run", "--runs", str(tmp_path / "runs"))
    assert done.returncode == 2
    assert "pip install 'fedeas[train]'" in done.stderr
    assert "Traceback" not in done.stderr


def public_names():
    """The names that the Python reference lists, and the modules that hold them."""
    page = (ROOT.parents[1] / "docs" / "api.md").read_text()
    names = {name.removesuffix(".__call__") for name in re.findall(r"^\.\. auto\w+:: (\S+)", page, re.MULTILINE)}
    return names | {name.rpartition(".")[0] for name in names}


def private_names(tree, public):
    """What a file imports or reaches of FedEAS although the reference does not list it."""
    for node in ast.walk(tree):
        found = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "fedeas":
            found = [f"fedeas.{node.attr}"]
        yield from (name for name in found if name.partition(".")[0] == "fedeas" and name not in public)


@pytest.mark.parametrize("folder", ["reproduction", "deploy"])
def test_what_is_built_on_the_library_uses_public_names_alone(folder):
    public = public_names()
    files = sorted((ROOT.parents[1] / folder).rglob("*.py"))
    assert files
    for path in files:
        assert not [*private_names(ast.parse(path.read_text()), public)], path


PRIVATE = ("import fedeas.core", "from fedeas.core import log", "from fedeas import core", "fedeas.core")


@pytest.mark.parametrize("line", PRIVATE)
def test_a_private_name_is_found(line):
    assert [*private_names(ast.parse(line), public_names())]
