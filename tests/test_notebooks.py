"""The notebooks of the documentation run from top to bottom, and their stored outputs are small."""

import json

import pytest

from notebooks import FOLDER, run

PATHS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_notebook_runs(path):
    stored = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in stored["cells"] if cell["cell_type"] == "code"]
    assert stored["nbformat"] == 4
    assert any(cell["outputs"] for cell in code), "python tests/notebooks.py writes outputs"
    assert path.stat().st_size < 60_000
    again = [cell for cell in run(stored)["cells"] if cell["cell_type"] == "code"]
    assert [len(cell["outputs"]) for cell in again] == [len(cell["outputs"]) for cell in code]
