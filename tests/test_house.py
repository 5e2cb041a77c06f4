"""The house: imports point one way, the README's map is the tree, and nothing loads an untrusted pickle."""
import ast
import re
import subprocess
import sys

import pytest
from conftest import ROOT

# What each room may import, besides the standard library and packages.
ALLOWED = {
    "corpora": {"corpora"},
    "report": {"report", "minbert", "corpora"},
    "minbert": {"minbert", "corpora"},
    "engine": {"engine", "minbert", "corpora"},
    "alignment": {"alignment", "engine", "minbert", "corpora"},
    "tasks": {"tasks", "minbert", "corpora"},
    "training": {"training", "report", "tasks", "engine", "minbert", "corpora"},
    "course": {"course", "training", "tasks", "minbert", "corpora"},
}
OPTIONAL = {"fastapi", "uvicorn"}  # of the leaderboard's server, which says so if they are missing
# Programs in a low room may ask a higher one, inside their main only.
PROGRAMS = {"corpora/check.py": {"minbert"}}
ROOMS = sorted(path.name for path in ROOT.iterdir() if (path / "__init__.py").exists())


def imported_rooms(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else (
            [node.module] if isinstance(node, ast.ImportFrom) and node.module else [])
        yield from (name.split(".")[0] for name in names if name.split(".")[0] in ROOMS)


@pytest.mark.parametrize("room", [room for room in ROOMS if room in ALLOWED])
def test_imports_point_one_way(room):
    for path in (ROOT / room).rglob("*.py"):
        foreign = set(imported_rooms(path)) - ALLOWED[room] - PROGRAMS.get(path.relative_to(ROOT).as_posix(), set())
        assert not foreign, f"{path.relative_to(ROOT)} imports {', '.join(foreign)}"


def test_the_product_needs_only_what_requirements_txt_pins():
    pinned = {re.split("[=<>]", line)[0].lower().replace("-", "_")
              for line in (ROOT / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")}
    for path in [*ROOT.glob("*.py"), *(p for room in ALLOWED for p in (ROOT / room).rglob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = node.names[0].name if isinstance(node, ast.Import) else node.module or ""
                name = module.split(".")[0]
                known = name in pinned | OPTIONAL | set(ROOMS) or name in __import__("sys").stdlib_module_names
                assert known, f"{path.name} imports {name}"


def test_every_requirement_is_pinned_exactly():
    for name in ("requirements.txt", "requirements-dev.txt"):
        for line in (ROOT / name).read_text().splitlines():
            assert not line or line.startswith("#") or re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9.]+", line), line


def test_the_readme_maps_every_file_of_every_room():
    readme = (ROOT / "README.md").read_text("utf-8")
    for room in ROOMS:
        for path in (ROOT / room).glob("*.py"):
            if path.name not in ("__init__.py", "__main__.py"):
                assert re.search(rf"\b{path.name}\b", readme), f"{path.relative_to(ROOT)} is not in the README's map"
    for name in re.findall(r"^  (\w+\.py)", readme, re.MULTILINE):
        assert list(ROOT.glob(f"*/{name}")), f"the README's map names {name}, which is not there"


def test_every_module_says_what_it_is():
    for path in [*ROOT.glob("*.py"), *(p for room in ROOMS for p in (ROOT / room).rglob("*.py"))]:
        assert ast.get_docstring(ast.parse(path.read_text("utf-8"))), path


def test_every_torch_load_is_weights_only_and_nothing_else_unpickles():
    for path in [*ROOT.glob("*.py"), *(p for room in ROOMS for p in (ROOT / room).rglob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and called.attr in ("load", "loads"):
                owner = getattr(called.value, "id", "")
                assert owner != "pickle", path
                if owner == "torch":
                    assert any(k.arg == "weights_only" and k.value.value is True for k in node.keywords), path


LESSON = ("attention.py", "bert.py", "adamw.py")


def test_the_lesson_is_short():
    assert sum(len((ROOT / "minbert" / name).read_text("utf-8").splitlines()) for name in LESSON) < 350


def test_the_lesson_knows_nothing_of_speed():
    """minbert/ imports nothing of engine/, and names no number type, no compiler and no packing."""
    for path in (ROOT / "minbert").glob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        assert "engine" not in set(imported_rooms(path)), path
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} | {
            node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | {
            keyword.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for keyword in node.keywords}
        speed = {name for name in names if name and re.search(
            r"dtype|float16|float32|float64|int64|promote|finfo|pack(ing|ed)|matmul_precision", name)}
        assert not speed, f"{path.name} names {', '.join(sorted(speed))}"
        compiled = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "compile"
                    and getattr(node.value, "id", "") != "re"]
        assert not compiled, path


def test_no_library_function_reads_the_process_wide_precision():
    """torch's setting is global. Programs write it; nothing decides by it."""
    for room in ALLOWED:
        for path in (ROOT / room).rglob("*.py"):
            assert "get_float32_matmul_precision" not in path.read_text("utf-8"), path


def test_only_one_file_of_training_imports_the_engine():
    for path in (ROOT / "training").glob("*.py"):
        assert "engine" not in set(imported_rooms(path)) or path.name == "engines.py", path


@pytest.mark.parametrize("program", ["train_multitask.py", "pretrain_tft.py"])
@pytest.mark.parametrize("arguments", [["--help"], ["--no_such_flag"], ["--recipe", "no-such-recipe.toml"]])
def test_help_and_a_mistake_are_answered_without_torch(program, arguments, tmp_path):
    done = subprocess.run([sys.executable, "-X", "importtime", str(ROOT / program), *arguments], cwd=tmp_path,
                          capture_output=True, text=True, check=False)
    assert done.returncode == (0 if arguments == ["--help"] else 2)
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "argparse" in imported and not imported & {"torch", "numpy", "scipy"}


def test_the_corpora_need_no_torch():
    code = "import sys, pkgutil, importlib, corpora\nfor module in pkgutil.iter_modules(corpora.__path__):\n" \
           "    importlib.import_module('corpora.' + module.name)\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
