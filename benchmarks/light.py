"""What people wait for around a fit, in processes of their own: set-up, one answer, a fit, a busy machine.

    python benchmarks/light.py [--data ../shared/data] [--only setup answer fit busy] [--repeats 5]

`setup`: `make demo` in a fresh clone: seconds and disk. `answer`: `prolip predict MODEL one.jpg`. `fit`:
`prolip fit` on 1,632 images of 102 classes whose features are kept (random pictures: their accuracy means
nothing; lam, fit, calibration, report and saved model are all there). `busy`: the same beside four processes
that never rest.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

PROJECT = Path(__file__).resolve().parents[1]
PROLIP = Path(sys.executable).with_name("prolip")
CLASSES, SHOTS = 102, 16


def report(what: str, seen: str, asked: str, met: bool) -> None:
    print(f"{'ok  ' if met else 'LESS'}  {what:<40} {seen}   asked: {asked}", flush=True)


def run(*command: str | Path, cwd: Path | None = None) -> float:
    """Seconds of a command; its output is shown only where it fails."""
    own = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # as where it is installed: compiled once
    began = time.perf_counter()
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, env=own)
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return seconds


def set_up(folder: Path) -> None:
    """A fresh clone, and the README's first command in it."""
    clone = folder / "clone"
    run("git", "clone", "--quiet", PROJECT, clone)
    seconds = run("make", "demo", cwd=clone)
    used = sum(path.lstat().st_blocks * 512 for path in clone.rglob("*")) / 1e6
    report("make demo in a fresh clone", f"{seconds:.0f} s", "60 s", seconds <= 60)
    report("disk after it", f"{used:.0f} MB", "600 MB", used <= 600)


def answer(folder: Path, photos: Path, repeats: int) -> None:
    """One answer from the command line."""
    model = folder / "pets"
    run(PROLIP, "fit", photos, "-o", model, "--shots", "4")
    picture = sorted((photos / "train").rglob("*.jpg"))[-1]
    run(PROLIP, "predict", model, picture)
    seconds = statistics.median(run(PROLIP, "predict", model, picture) for _ in range(repeats))
    report("prolip predict MODEL one.jpg", f"{seconds:.2f} s", "0.7 s", seconds <= 0.7)


def pictures(folder: Path) -> Path:
    """A folder per class of small pictures, alike within a class."""
    root, rng = folder / "many", np.random.default_rng(0)
    for k in range(CLASSES):
        base = rng.integers(0, 256, (6, 6, 3))
        (root / f"class {k:03}").mkdir(parents=True)
        for i in range(SHOTS):
            pixels = (base + rng.normal(0, 60, base.shape)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).resize((64, 64)).save(root / f"class {k:03}" / f"{i}.png")
    return root


def fit(folder: Path, repeats: int, busy: bool) -> None:
    """A fit on kept features, alone or beside four others."""
    root = folder / "many" if (folder / "many").exists() else pictures(folder)
    run(PROLIP, "fit", root, "-o", folder / "first", "--force")  # encodes the pictures
    others = []
    if busy:
        spin = "while True: pass"
        others = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(4)]
    try:
        each = [run(PROLIP, "fit", root, "-o", folder / f"{busy}-{i}") for i in range(repeats)]
    finally:
        for other in others:
            other.kill()
    seconds, asked = statistics.median(each), 20 if busy else 5
    what = "beside four busy processes" if busy else "prolip fit, 1,632 images x 102 classes"
    report(what, f"{seconds:.1f} s", f"{asked} s", seconds <= asked)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=PROJECT.parent / "shared" / "data")
    parser.add_argument("--only", nargs="+", default=["setup", "answer", "fit", "busy"])
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["PROLIP_CACHE"] = str(folder / "cache")
        if "answer" in args.only:
            answer(folder, args.data / "images" / "pets37", args.repeats)
        if "fit" in args.only:
            fit(folder, args.repeats, busy=False)
        if "busy" in args.only:
            fit(folder, min(2, args.repeats), busy=True)
        if "setup" in args.only:
            set_up(folder)


if __name__ == "__main__":
    main()
