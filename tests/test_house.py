"""The house: imports point one way, the README's map is the tree, and nothing loads an untrusted pickle."""
import ast
import re

import pytest
from conftest import ROOT

# What each room may import, besides the standard library and packages.
ALLOWED = {
    "minbert": {"minbert"},
    "corpora": {"corpora", "minbert"},
    "tasks": {"tasks", "minbert", "corpora"},
    "alignment": {"alignment", "minbert", "corpora"},
    "training": {"training", "tasks", "minbert"},
}
ROOMS = sorted(path.name for path in ROOT.iterdir() if (path / "__init__.py").exists())


def imported_rooms(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else (
            [node.module] if isinstance(node, ast.ImportFrom) and node.module else [])
        yield from (name.split(".")[0] for name in names if name.split(".")[0] in ROOMS)


@pytest.mark.parametrize("room", [room for room in ROOMS if room in ALLOWED])
def test_imports_point_one_way(room):
    for path in (ROOT / room).rglob("*.py"):
        foreign = set(imported_rooms(path)) - ALLOWED[room]
        assert not foreign, f"{path.relative_to(ROOT)} imports {', '.join(foreign)}"


def test_the_product_needs_only_what_requirements_txt_pins():
    pinned = {re.split("[=<>]", line)[0].lower().replace("-", "_")
              for line in (ROOT / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")}
    for path in [*ROOT.glob("*.py"), *(p for room in ALLOWED for p in (ROOT / room).rglob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = node.names[0].name if isinstance(node, ast.Import) else node.module or ""
                name = module.split(".")[0]
                known = name in pinned | set(ROOMS) or name in __import__("sys").stdlib_module_names
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
