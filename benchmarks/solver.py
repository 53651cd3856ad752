"""The exact fit beside the paper's Adam, and lam = "auto" beside 1/N, on the same tasks in one run.

    python benchmarks/solver.py [--data ../shared/data] [--only speed same accuracy] [--quick]

`speed`: seconds, objective, evaluations and peak memory at lam = 1/N; the reference is the paper's fit in
PyTorch (autograd, Adam, cosine, 300 epochs), the objective the best of four learning rates. `same`: how far
logits move when the samples come in another order, and with another number of threads. `accuracy`: on five
sets, 1 to 16 images per class. `--quick` compares no objectives. Each line shows what was asked for. Factors
are ratios on the clock, each side timed with nothing else running; needs the extra `torch`.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from prolip import Task
from prolip.core.arrays import Array, unit_rows
from prolip.methods.common.automatic import automatic
from prolip.solvers import exact, regime
from solver_tasks import few_shot, lifted_imagenet, lifted_whu, photos, whu

RATES = (1e-3, 1e-4, 1e-2, 1e-5)
EPOCHS = 300
SETS = ("WHU-RS19 RN50", "WHU-RS19 ViT-B/32", "pets37", "dtd10", "clothing10")


@dataclass(frozen=True)
class Shape:
    """A task to time, and how many times faster than the reference it is asked to be."""

    name: str
    make: Callable[[Path], Task]
    faster: float
    repeats: int = 5


SHAPES = (
    Shape("n=19 K=19 RN50 lifted", lambda d: lifted_whu(d, 1, 2048), 300, 51),
    Shape("n=76 K=19 RN50 lifted", lambda d: lifted_whu(d, 4, 2048), 200, 51),
    Shape("n=304 K=19 RN50 lifted", lambda d: lifted_whu(d, 16, 2048), 80, 9),
    Shape("n=752 K=47 RN50 lifted", lambda d: lifted_imagenet(d, 47, 16, 2048, 1024), 30),
    Shape("n=1600 K=100 RN50 lifted", lambda d: lifted_imagenet(d, 100, 16, 2048, 1024), 14, 3),
    Shape("n=16000 K=1000 RN50 lifted", lambda d: lifted_imagenet(d, 1000, 16, 2048, 1024), 10, 1),
    Shape("n=400 K=100 ViT-B lifted", lambda d: lifted_imagenet(d, 100, 4, 768, 512), 18, 9),
    Shape("n=4000 K=1000 ViT-B lifted", lambda d: lifted_imagenet(d, 1000, 4, 768, 512), 10, 3),
)


class Peak:
    """Peak resident memory above what was resident at the start, in GB; 0 where it cannot be read."""

    def __enter__(self) -> Peak:
        gc.collect()
        self.start = self.top = self._resident()
        self.stop = threading.Event()
        self.watcher = threading.Thread(target=self._watch, daemon=True)
        self.watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.watcher.join()

    @property
    def gigabytes(self) -> float:
        """Above the start."""
        return (self.top - self.start) / 1e9

    def _watch(self) -> None:
        while not self.stop.wait(0.002):
            self.top = max(self.top, self._resident())

    @staticmethod
    def _resident() -> int:
        try:
            return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
        except OSError:
            return 0


def report(what: str, seen: str, asked: str = "", met: bool = True) -> None:
    mark = "ok  " if met else "LESS"
    print(f"{mark}  {what:<34} {seen}" + (f"   asked: {asked}" if asked else ""), flush=True)


def clock(work: Callable[[], object], repeats: int = 1) -> float:
    """Seconds: the median of several runs."""
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def recipe(task: Task, lam: float, epochs: int, lr: float = 1e-4) -> float:
    """The paper's fit as it is usually written in PyTorch; the objective that it ends at."""
    unit = torch.nn.functional.normalize
    x, y = torch.from_numpy(task.x[0]), torch.from_numpy(task.y)
    w0, text = torch.from_numpy(task.linear.weight), torch.from_numpy(task.text.rows)
    weight = torch.nn.Parameter(w0.clone())
    optimizer = torch.optim.Adam([weight], lr=lr, eps=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)

    def objective() -> torch.Tensor:
        logits = task.scale * unit(x @ weight, dim=1) @ text.T
        return torch.nn.functional.cross_entropy(logits, y) + lam * (weight - w0).square().sum()

    for _ in range(epochs):
        optimizer.zero_grad()
        objective().backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return float(objective())


def reference(task: Task, lam: float) -> float:
    """Seconds of one fit. Every epoch costs the same: some are timed and multiplied."""
    epochs, repeats = (60, 5) if task.n <= 400 else (20, 3) if task.n <= 1600 else (6, 1)
    recipe(task, lam, 2)
    few, more = (clock(lambda n=n: recipe(task, lam, n), repeats) for n in (2, 2 + epochs))
    return (more - few) * EPOCHS / epochs


def show_speed(shape: Shape, task: Task, rates: Sequence[float]) -> None:
    """Both solvers at lam = 1/N, ours before and after the reference."""
    lam, fits = 1 / task.shots, []

    def ours() -> None:
        fits.append(exact(task, lam))

    with Peak() as peak:
        ours()  # also brings threads and memory pools up before the clock starts
    before = clock(ours, shape.repeats)
    theirs = reference(task, lam)
    mine = (before + clock(ours, shape.repeats)) / 2
    factor, solution = theirs / mine, fits[-1]
    best = min((recipe(task, lam, EPOCHS, rate) for rate in rates), default=np.inf)
    seen = (
        f"{factor:6.1f}x   {mine:.4f} s against {theirs:.2f} s   "
        f"objective {solution.objective:.6f} / {best:.6f}   "
        f"{solution.evaluations} evaluations   {peak.gigabytes:.2f} GB"
    )
    met = factor >= shape.faster and solution.objective <= best * (1 + 1e-6)
    report(shape.name, seen, f"{shape.faster:g}x, objective no higher", met)


def show_same(shape: Shape, task: Task) -> None:
    """Largest change of any logit of the support, at 1/N and for "auto"."""
    order = np.random.default_rng(0).permutation(task.n)
    limit = 0.01 if task.n <= 4000 else 0.1
    ways: dict[str, Callable[[Task], Array]] = {"1/N": lambda t: exact(t, 1 / t.shots).weight}
    if task.n <= 1600:
        ways["auto"] = lambda t: automatic(t)[0].weight
    for way, fit in ways.items():
        first = logits(task, fit(task))
        with_one = regime.cores
        regime.cores = lambda: 1
        others = {"threads": logits(task, fit(task))}
        regime.cores = with_one
        others["order"] = logits(task, fit(task.subset(order)))
        moved = {what: float(np.abs(other - first).max()) for what, other in others.items()}
        answers = all((other.argmax(axis=1) == first.argmax(axis=1)).all() for other in others.values())
        seen = "   ".join(f"{what} {most:.0e}" for what, most in moved.items())
        seen += "" if answers else "   ANSWERS DIFFER"
        report(f"same, {way}, {shape.name}", seen, f"{limit:g}", answers and max(moved.values()) <= limit)


def logits(task: Task, weight: Array) -> Array:
    """Of the support set."""
    return task.scale * unit_rows(task.linear.with_weight(weight)(task.x[0])) @ task.text.rows.T


def splits(data: Path, name: str, shots: int, seed: int) -> tuple[Task, Array, Array]:
    """A few-shot task, and the test images."""
    if name.startswith("WHU"):
        x, y, rows = whu(data, "rn50" if name.endswith("RN50") else "vit_b_32")
        picked = few_shot(y, shots, seed)
        rest = np.setdiff1d(np.arange(len(y)), picked)
        return Task(x[picked], y[picked], rows), x[rest], y[rest]
    task, x, y = photos(data, name)
    return task.subset(few_shot(task.y, shots, seed)), x, y


def accuracy(task: Task, weight: Array, x: Array, y: Array) -> float:
    embedded = task.linear.with_weight(weight)(x)
    return float(np.mean((embedded @ task.text.rows.T).argmax(axis=1) == y))


def logistic_regression(task: Task, x: Array, y: Array) -> float:
    """scikit-learn's, C by cross-validation, on the same features."""
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.model_selection import StratifiedKFold

    folds = StratifiedKFold(min(5, int(task.shots)), shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # iterations run out at the largest C
        model = LogisticRegressionCV(Cs=[10.0**k for k in range(-4, 3)], cv=folds, max_iter=200, tol=1e-3)
        model.fit(task.x[0], task.y)
    return float(model.score(x, y))


def show_accuracy(data: Path, seeds: int, regression: bool) -> None:
    """Means over seeds, percent: "auto", 1/N, regression."""
    gains, worst = {}, np.inf
    for shots in (1, 2, 4, 16):
        rows = [mean_scores(data, name, shots, seeds, regression) for name in SETS]
        for name, row in zip(SETS, rows, strict=True):
            seen = f"auto {row[0]:.1f}  1/N {row[1]:.1f}"
            seen += f"  regression {row[2]:.1f}" if len(row) > 2 else ""
            report(f"{name}, {shots} per class", seen)
            worst = min(worst, row[0] - row[1])
        auto, plain = (statistics.mean(row[i] for row in rows) for i in range(2))
        gains[shots] = auto - plain
        report(f"mean, {shots} per class", f"auto {auto:.2f}  1/N {plain:.2f}")
    gain = (gains[4] + gains[16]) / 2
    report("auto over 1/N, 4 and 16 per class", f"{gain:+.2f}", "+2.1", gain >= 2.1)
    report("auto over 1/N, 1 per class", f"{gains[1]:+.2f}", "+4", gains[1] >= 4)
    report("auto over 1/N, worst set", f"{worst:+.2f}", "-0.8", worst >= -0.8)


def mean_scores(data: Path, name: str, shots: int, seeds: int, regression: bool) -> list[float]:
    """Percent, over seeds: the columns of `show_accuracy`, regression where it applies."""
    scores = []
    for seed in range(seeds):
        task, x, y = splits(data, name, shots, seed)
        weights = automatic(task, seed=seed)[0].weight, exact(task, 1 / task.shots).weight
        scores.append([accuracy(task, weight, x, y) for weight in weights])
        if regression and shots >= 4 and not task.black_box:
            scores[-1].append(logistic_regression(task, x, y))
    return [100 * statistics.mean(column) for column in zip(*scores, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--only", nargs="+", default=["speed", "same", "accuracy"])
    parser.add_argument("--shapes", nargs="+", help="parts of shape names, like n=76 ViT-B")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rates", nargs="+", type=float, default=RATES, help="Adam's learning rates")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--regression", action="store_true", help="logistic regression beside it")
    args = parser.parse_args()
    torch.set_flush_denormal(True)  # Adam's moments run into denormal numbers, which are slow
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads. Lifted: see solver_tasks.py.")
    for shape in SHAPES if {"speed", "same"} & set(args.only) else ():
        if args.shapes and not any(part in shape.name for part in args.shapes):
            continue
        task = shape.make(args.data)
        if "speed" in args.only:
            show_speed(shape, task, () if args.quick else args.rates)
        if "same" in args.only:
            show_same(shape, task)
    if "accuracy" in args.only:
        show_accuracy(args.data, args.seeds, args.regression)


if __name__ == "__main__":
    main()
