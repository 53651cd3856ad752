"""Conventions that ruff has no rule for."""

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "prolip"


def test_errors_of_the_library_name_parameters_not_options():
    """As `Parameter`, which the command line writes as options; the commands themselves may."""
    found = [
        f"{path}, line {node.lineno}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] not in ("cli", "research")
        for raised in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(raised, ast.Raise)
        for node in ast.walk(raised)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.search(r"(?<!install )(?<![-\w])--[a-z]|\b(force|skip_bad|download|calibrate)=", node.value)
    ]
    assert found == []


def test_contributing_names_files_that_exist():
    project = SOURCE.parents[1]
    text = (project / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w./-]+/[\w.-]+\.(?:py|js|html|json|md|toml))`", text))
    assert len(named) > 50
    assert [
        name for name in sorted(named) if not any((root / name).exists() for root in (SOURCE, project))
    ] == []
