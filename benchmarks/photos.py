"""The main job, measured: accuracy on photos, throughput, the black box, both solvers, and start-up time.

    python benchmarks/photos.py [--data ../shared/data] [--only accuracy speed rla objective help]

Each part prints what was asked for beside what was seen. The offline encoder is not CLIP; its accuracies are
not comparable with the paper's.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from prolip import Task, methods, solvers
from prolip.data import read_images, sample_few_shot
from prolip.encoders import load
from prolip.evaluate.metrics import accuracy
from prolip.features import FeatureStore, extract
from solver_tasks import photos, whu

LEARNING_RATES = (1e-5, 1e-4, 1e-3, 1e-2)


def report(what: str, seen: str, asked: str, met: bool) -> None:
    print(f"{'ok  ' if met else 'LESS'}  {what:<58} {seen:>22}   asked: {asked}", flush=True)


def show_accuracy(data: Path) -> None:
    for name, zero_shot_asked, asked in (("pets37", 0.40, 0.84), ("dtd10", None, 0.73)):
        task, x, y = photos(data, name)
        if zero_shot_asked:
            seen = accuracy(methods.create("zero_shot").fit(task).logits(x), y)
            report(f"{name}, offline, zero-shot", f"{100 * seen:.1f} %", "40 %", seen >= zero_shot_asked)
        for lam in ("auto", 0.01, "1/N"):
            seen = accuracy(methods.create("prolip", lam=lam).fit(task).logits(x), y)
            report(
                f"{name}, offline, 16-shot ProLIP, lam = {lam}",
                f"{100 * seen:.1f} %",
                f"{100 * asked:.0f} % at a lam of our choice",
                seen >= asked,
            )


def show_speed(data: Path) -> None:
    encoder = load("offline")
    paths = read_images(data / "images" / "pets37", split="train").images
    with tempfile.TemporaryDirectory() as folder:
        first = extract(encoder, paths, store=FeatureStore(Path(folder)))
        second = extract(encoder, paths, store=FeatureStore(Path(folder)))
    rate = len(paths) / first.seconds
    report(
        "pets37/train through offline, decoding included", f"{rate:.0f} images/s", "60 images/s", rate >= 60
    )
    seen = f"{second.encoded} in {second.seconds:.2f} s"
    report("second run: images encoded", seen, "0", second.encoded == 0)


def show_rla(data: Path) -> None:
    x, y, rows = whu(data, "rn50")
    zero_shot = accuracy(methods.create("zero_shot").fit(Task(x, y, rows)).logits(x), y)
    report(
        "WHU-RS19, CLIP RN50, zero-shot", f"{100 * zero_shot:.1f} %", "71.5 %", abs(zero_shot - 0.715) < 5e-4
    )
    seen = []
    for seed in range(1, 6):
        chosen = sample_few_shot(y, 4, seed)
        rest = np.setdiff1d(np.arange(len(y)), chosen)
        fitted = methods.create("rla", lam="1/N").fit(Task(x[chosen], y[chosen], rows))
        seen.append(accuracy(fitted.logits(x[rest]), y[rest]))
    mean = statistics.mean(seen)
    text = f"{100 * mean:.1f} +- {100 * statistics.pstdev(seen):.1f} %"
    report("WHU-RS19, CLIP RN50, RLA, 4 shots, lam = 1/N, 5 seeds", text, "87 %", mean >= 0.87)


def show_objective(data: Path) -> None:
    whole = {"WHU-RS19 RN50": Task(*whu(data, "rn50")), "pets37 offline": photos(data, "pets37")[0]}
    tasks = {
        f"{name}, {shots} shots": task.subset(np.array(sample_few_shot(task.y, shots, 1)))
        for name, task in whole.items()
        for shots in (1, 4, 16)
    }
    for name, task in tasks.items():
        lam = solvers.lam_value("1/N", task)
        exact = solvers.exact(task, lam)
        best = min(solvers.adam(task, lam, lr=lr).objective for lr in LEARNING_RATES)
        report(
            f"{name}: objective, exact",
            f"{exact.objective:.6f}",
            f"<= {best:.6f} (Adam's best of 4)",
            exact.objective <= best * (1 + 1e-6),
        )


def show_help(data: Path) -> None:
    command = [sys.executable, "-c", "from prolip.cli import main; main()", "--help"]
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds.append(time.perf_counter() - started)
    seen = statistics.median(seconds)
    report("prolip --help", f"{seen:.2f} s", "0.5 s", seen <= 0.5)


PARTS = {
    "accuracy": show_accuracy,
    "speed": show_speed,
    "rla": show_rla,
    "objective": show_objective,
    "help": show_help,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        parser.error(f"no folder {arguments.data}: give the one with features/ and images/ as --data")
    for part in arguments.only:
        PARTS[part](arguments.data)


if __name__ == "__main__":
    main()
