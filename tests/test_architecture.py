"""The layers of docs/architecture.md: a module imports only what stands above it, and the core stays light."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import fedeas

ROOT = Path(fedeas.__file__).parent

DOC = ROOT.parent.parent / "docs" / "architecture.md"


def documented_layers():
    """The names that begin a line of the list in docs/architecture.md, from the ground up."""
    block = DOC.read_text().partition("```text\n")[2].partition("```")[0]
    lines = re.findall(r"^  ((?:\w+(?:\.py|/) ?)+) ", block, re.MULTILINE)
    return [[name.removesuffix(".py").rstrip("/") for name in line.split()] for line in lines] + [["__main__"]]


LAYERS = documented_layers()
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

# Who may import what from outside; the standard library and numpy are everyone's.
ALLOWED = {
    "filelock": {"locks"},
    "triton": {"generators.diffusion.kernels", "models.norm_kernels"},
    "flwr": {
        "deployment.executor",
        "deployment.node",
        "deployment.quick",
        "deployment.superlink",
        "distributed",
        "engines.flower",
        "flower_app",
    },
    "cryptography": {"deployment.keys"},
    "psutil": {"deployment.processes"},
    "httpx": {"deployment.executor", "deployment.superlink"},
    "matplotlib": {
        "plots",
        "paper.amounts",
        "paper.curves",
        "paper.figures",
        "paper.gallery",
        "paper.marks",
        "paper.overview",
        "report.figures",
    },
    "pyarrow": {"tables.opening", "tables.reading", "tables.writing", "data.parquet"},
    "PIL": {"augmentation", "data.cache", "generators.grid"},
    "scipy": {"comparison"},
    "sklearn": {"data.sources"},
    "huggingface_hub": {"data.sources"},
    "pydantic": {"config", "paper.published"},
    "typer": {
        "cli",
        "cli.bank",
        "cli.flower",
        "cli.generator",
        "cli.plan",
        "cli.planner",
        "cli.pretrain",
        "cli.reproduce",
        "cli.runs",
    },
    "streamlit": {"cli.planner", "web.planner"},
    "plotly": {"web.charts"},
    "rich": {
        "cli",
        "cli.bank",
        "cli.generator",
        "cli.plan",
        "cli.pretrain",
        "cli.reproduce",
        "cli.runs",
        "demo",
        "display",
    },
    "safetensors": {"starts", "tensorfile"},
    "diffusers": {
        "generators.diffusion.fused",
        "generators.diffusion.presets",
        "generators.diffusion.sampling",
        "generators.diffusion.trainer",
        "generators.text",
    },
    "transformers": {"generators.text"},
    "torchmetrics": {"generators.quality"},
}

# Families that need torch; everything else must load without it.
WITH_TORCH = {
    "distributed",
    "flower_app",
    "participant",
    "pretraining",
    "augmentation",
    "capture",
    "devices",
    "data.client",
    "models",
    "generators.classifier",
    "generators.diffusion",
    "generators.memory",
    "generators.quality",
    "generators.text",
    "algorithms",
    "engines",
    "worker",
    "checkpoint",
    "federate",
    "measures",
    "run",
    "cli.generator",
    "cli.runs",
}


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
            if node.module == "fedeas":
                yield from (f"fedeas.{alias.name}" for alias in node.names)
            else:
                yield node.module


def test_every_module_has_its_layer():
    assert {name.partition(".")[0] for name, _ in modules()} == set(LEVEL)


def test_imports_point_downwards_only():
    for name, tree in modules():
        family = name.partition(".")[0]
        for target in imports(tree):
            if target.startswith("fedeas.") and target != "fedeas.__version__":
                below = target.split(".")[1]
                same = LAYERS[LEVEL[family]]
                assert LEVEL[below] < LEVEL[family] or below in same, f"{name} imports {target}"


def test_outside_packages_are_imported_only_where_they_belong():
    standard = set(sys.stdlib_module_names)
    for name, tree in modules():
        for target in imports(tree):
            package = target.partition(".")[0]
            if package in standard or package in ("fedeas", "numpy"):
                continue
            if package == "torch":
                assert any(f"{name}.".startswith(f"{family}.") for family in WITH_TORCH), f"{name} imports torch"
                continue
            assert name in ALLOWED[package], f"{name} imports {target}"


def test_algorithms_and_generators_do_not_see_each_other():
    for name, tree in modules():
        families = {target.split(".")[1] for target in imports(tree) if target.startswith("fedeas.")}
        if name.startswith("algorithms"):
            assert not families & {"generators", "engines", "models"}, name
        if name.startswith(("generators", "models")):
            assert not families & {"algorithms", "engines", "policies", "data"}, name


def test_policies_do_not_know_files_nor_each_others_family():
    for name, tree in modules():
        if name.startswith("policies."):
            families = {target.split(".")[1] for target in imports(tree) if target.startswith("fedeas.")}
            assert families <= {"arrays", "counts", "errors", "policies", "spec", "validation"}


def test_importing_the_core_loads_numpy_and_nothing_heavier():
    script = "import sys, fedeas; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    outside = set(loaded) - set(sys.stdlib_module_names) - {"fedeas", "__main__"}
    heavy = {"torch", "pyarrow", "matplotlib", "typer", "rich", "pydantic", "pandas", "scipy"}
    assert "numpy" in outside
    assert not heavy & outside


def test_planning_on_the_command_line_does_not_wait_for_torch_nor_flower():
    script = "import sys, fedeas.cli; print('torch' in sys.modules, 'flwr' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == ["False", "False"]


def test_the_command_line_does_not_wait_for_the_page():
    script = "import sys, fedeas.cli; print('streamlit' in sys.modules, 'plotly' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == ["False", "False"]


WITHOUT_EXTRAS = """
import sys
for name in ("torch", "safetensors", "diffusers", "huggingface_hub", "torchmetrics", "sklearn", "flwr", "streamlit"):
    sys.modules[name] = None  # as if it were not installed
from fedeas.cli import main
main(sys.argv[1:])
"""


def without_extras(*arguments):
    return subprocess.run([sys.executable, "-c", WITHOUT_EXTRAS, *arguments], capture_output=True, text=True)


def test_a_plain_installation_plans_and_checks_the_papers_counts():
    assert "13,437" in without_extras("plan", "--example").stdout
    assert without_extras("reproduce", "fig2", "--help").returncode == 0
    assert "not run" in without_extras("reproduce", "table2", "--show", "--markdown").stdout


def test_a_plain_installation_says_what_training_needs(tmp_path):
    done = without_extras("run", "--runs", str(tmp_path / "runs"))
    assert done.returncode == 2
    assert "pip install 'fedeas[train]'" in done.stderr
    assert "Traceback" not in done.stderr
