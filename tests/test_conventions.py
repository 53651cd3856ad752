"""Conventions that ruff has no rule for."""

import re
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "prolip"


def test_contributing_names_files_that_exist():
    project = SOURCE.parents[1]
    text = (project / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w./-]+/[\w.-]+\.(?:py|js|html|json|md|toml))`", text))
    assert len(named) > 50
    assert [
        name for name in sorted(named) if not any((root / name).exists() for root in (SOURCE, project))
    ] == []
