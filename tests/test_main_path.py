"""The main path stays short enough to read, `run_experiment` and the callbacks, and folders small enough to scan."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

CORE = Path(__file__).resolve().parents[1] / "bsc_core"
CALLBACKS = CORE / "training" / "callbacks.py"
MAX_MODULES = 12


def length(node: ast.ClassDef | ast.FunctionDef) -> int:
    """Lines of the body without the docstring."""
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return body[-1].end_lineno - body[0].lineno + 1


def callback_classes(path: Path) -> list[ast.ClassDef]:
    """The callbacks that a module defines; at least one."""
    classes = [
        node
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Callback" for base in node.bases)
    ]
    assert classes, path
    return classes


def test_run_experiment_fits_on_one_screen() -> None:
    tree = ast.parse((CORE / "pipeline.py").read_text(encoding="utf-8"))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert length(functions["run_experiment"]) <= 45
    assert not any(isinstance(node, ast.ClassDef) for node in tree.body)


@pytest.mark.parametrize("callback", callback_classes(CALLBACKS), ids=lambda node: node.name)
def test_no_callback_exceeds_eighty_lines(callback: ast.ClassDef) -> None:
    assert length(callback) <= 80


@pytest.mark.parametrize("top", [CORE, CORE.parent / "pages"], ids=lambda path: path.name)
def test_no_folder_has_more_than_twelve_modules(top: Path) -> None:
    modules = [path for suffix in ("py", "js") for path in top.rglob(f"*.{suffix}") if path.name != "__init__.py"]
    counts = Counter(path.parent for path in modules)
    assert counts
    assert not {str(folder): count for folder, count in counts.items() if count > MAX_MODULES}


def test_no_test_has_a_deadline_of_its_own() -> None:
    """A busy machine needs longer; `PATIENCE_SECONDS` is the only deadline. Intervals of polling are shorter."""
    deadline = re.compile(r"(?:\.wait\(|timeout=|wait_for_task\(\w+, )(\d+)")
    for path in Path(__file__).parent.rglob("*.py"):
        found = deadline.findall(path.read_text(encoding="utf-8"))
        assert not [seconds for seconds in found if int(seconds) >= 10], path
