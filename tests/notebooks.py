"""Run notebooks without Jupyter: `python tests/notebooks.py` writes the outputs of those in docs/notebooks.

The cells of a notebook share a namespace. A cell's output is what it prints, and its last expression as HTML
(`_repr_html_`) or text.
"""

import ast
import json
import os
import tempfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"


def run(notebook):
    """Run the code cells in the working folder, and return the notebook with their outputs."""
    names = {"__name__": "__main__"}
    cells = [
        {**cell, "outputs": run_cell("".join(cell["source"]), names)} if cell["cell_type"] == "code" else cell
        for cell in notebook["cells"]
    ]
    return {**notebook, "cells": cells}


def run_cell(source, names):
    """Run one cell, and return its outputs in the format of notebooks."""
    body = ast.parse(source).body
    last = ast.Expression(body.pop().value) if body and isinstance(body[-1], ast.Expr) else None
    printed, value = StringIO(), None
    with redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "cell", "exec"), names)  # a notebook of this repository
        if last:
            value = eval(compile(last, "cell", "eval"), names)
    outputs = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = lines(value._repr_html_())
        outputs.append(
            {"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data}
        )
    return outputs


def lines(text):
    return text.splitlines(keepends=True)


def main():
    """Write the outputs of every notebook."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        before = Path.cwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                done = run(json.loads(path.read_text(encoding="utf-8")))
            finally:
                os.chdir(before)
        path.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
