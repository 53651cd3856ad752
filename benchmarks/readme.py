"""The table of figures in README.md.

    python benchmarks/readme.py [--data data] [--write]

Commands of prolip as a user runs them, each in a process of its own, with an empty cache. Rows on photo sets
need --data: a folder with images/NAME/{train,test}/CLASS, and features of CLIP ViT-B/16. --write puts the
table into README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median
from typing import Any

README = Path(__file__).parents[1] / "README.md"
SETS = {
    "pets37": "37 breeds of cats and dogs",
    "dtd10": "10 textures",
    "clothing10": "10 kinds of clothes",
}


def prolip(work: Path, *arguments: str) -> Any:
    """The JSON that a command prints."""
    environment = {**os.environ, "PROLIP_CACHE": str(work / "cache")}
    command = [sys.executable, "-m", "prolip", *arguments, "--json"]
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def seconds(work: Path, *arguments: str) -> float:
    """The time of a command, the median of five."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        prolip(work, *arguments)
        times.append(time.perf_counter() - start)
    return median(times)


def change(before: float, after: float) -> str:
    return f"{100 * before:.1f} → {100 * after:.1f} %"


def rows(work: Path, data: Path) -> Iterator[tuple[str, str]]:
    """What was measured, and the figure."""
    demo = prolip(work, "demo")
    figure = change(demo["zero_shot_accuracy"], demo["accuracy"])
    yield "`prolip demo`, ten drawn textures, zero-shot → 16 images of each", figure
    image = work / "prolip-demo" / "photos" / "test" / "dotted" / "0.jpg"
    one = seconds(work, "predict", "prolip-demo/textures-model", str(image))
    if (data / "images").is_dir():
        for name, title in SETS.items():
            photos = str((data / "images" / name).resolve())
            prolip(work, "fit", photos, "-o", name)
            found = prolip(work, "eval", name, photos)
            figure = change(found["zero_shot_accuracy"], found["accuracy"])
            yield f"{name}, {title}, `offline`: zero-shot → `prolip fit` on 16 photos of each", figure
        from accuracy import Run, measure_accuracy
        from tasks import GROUPS

        specs = ["zero_shot", "prolip", "anchored"]
        found = [
            measure_accuracy(Run(data, name, 4, draw, False, specs))
            for name in GROUPS["clip"]
            for draw in range(10)
        ]
        zero_shot, paper, ours = (fmean(each[key] for each in found) for key in specs)
        figures = f"{zero_shot:.1f}, {paper:.1f}, {ours:.1f} %"
        sets = "mean of dtd10, clothing10 and 24 breeds of pets37"
        yield f"CLIP ViT-B/16, 4 photos of each class, {sets}: zero-shot, `prolip`, `anchored`", figures
        photos = str((data / "images" / "pets37").resolve())
        again = seconds(work, "fit", photos, "-o", "again", "--force")
        yield "`prolip fit`, 592 photos of 37 classes that were encoded before, all in all", f"{again:.1f} s"
    yield "`prolip predict` of one photo, all in all", f"{one:.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        lines = [f"| {what} | {figure} |" for what, figure in rows(Path(work), arguments.data)]
    table = "\n".join(["| | |", "| --- | --- |", *lines])
    print(table)
    if arguments.write:
        text = README.read_text(encoding="utf-8")
        marked = re.compile(r"<!-- figures -->\n.*?(?=\n## )", re.DOTALL)
        README.write_text(marked.sub(f"<!-- figures -->\n{table}\n", text), encoding="utf-8")


if __name__ == "__main__":
    main()
