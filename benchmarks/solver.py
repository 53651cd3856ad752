"""The exact fit beside the paper's Adam on the same tasks, in one run.

    python benchmarks/solver.py [--data data] [--only speed same] [--shapes n=76 ViT-B] [--quick]

`speed`: seconds, objective, evaluations and peak memory at lam = 1/N. Beside it the paper's fit in PyTorch
(autograd, Adam, cosine, 300 epochs); its objective is the best of four learning rates, and left out with
`--quick`. `same`: how far logits move when the samples come in another order, and with one thread. Factors
are ratios of wall time, each side timed with nothing else running; needs the extra `torch`.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from prolip import Task, methods
from prolip.core.arrays import Array, unit_rows
from prolip.solvers import exact, threads
from tasks import DEFAULT, lifted_imagenet, lifted_whu

RATES = (1e-3, 1e-4, 1e-2, 1e-5)
EPOCHS = 300


@dataclass(frozen=True)
class Shape:
    """A task to time."""

    name: str
    make: Callable[[Path], Task]
    repeats: int = 5


SHAPES = (
    Shape("n=19 K=19 RN50 lifted", lambda d: lifted_whu(d, 1, 2048), 51),
    Shape("n=76 K=19 RN50 lifted", lambda d: lifted_whu(d, 4, 2048), 51),
    Shape("n=304 K=19 RN50 lifted", lambda d: lifted_whu(d, 16, 2048), 9),
    Shape("n=752 K=47 RN50 lifted", lambda d: lifted_imagenet(d, 47, 16, 2048, 1024)),
    Shape("n=1600 K=100 RN50 lifted", lambda d: lifted_imagenet(d, 100, 16, 2048, 1024), 3),
    Shape("n=16000 K=1000 RN50 lifted", lambda d: lifted_imagenet(d, 1000, 16, 2048, 1024), 1),
    Shape("n=400 K=100 ViT-B lifted", lambda d: lifted_imagenet(d, 100, 4, 768, 512), 9),
    Shape("n=4000 K=1000 ViT-B lifted", lambda d: lifted_imagenet(d, 1000, 4, 768, 512), 3),
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


def show(what: str, measured: str) -> None:
    print(f"{what:<34} {measured}", flush=True)


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
    show(
        shape.name,
        f"{factor:6.1f}x   {mine:.4f} s beside {theirs:.2f} s   "
        f"objective {solution.objective:.6f} beside {best:.6f}   "
        f"{solution.evaluations} evaluations   {peak.gigabytes:.2f} GB",
    )


def show_same(shape: Shape, task: Task) -> None:
    """Largest change of a logit of the support set, at 1/N and for the default method."""
    order = np.random.default_rng(0).permutation(task.n)
    fits: dict[str, Callable[[Task], Array]] = {"1/N": lambda t: exact_logits(t, task)}
    if task.n <= 1600:
        fits["default"] = lambda t: methods.create(DEFAULT).fit(t).logits(task.x[0])
    for name, fit in fits.items():
        first, others = fit(task), {"order": fit(task.subset(order))}
        with mock.patch.object(threads, "cores", return_value=1):
            others["threads"] = fit(task)
        moved = "   ".join(f"{what} {np.abs(other - first).max():.0e}" for what, other in others.items())
        same = all((other.argmax(axis=1) == first.argmax(axis=1)).all() for other in others.values())
        show(f"same, {name}, {shape.name}", moved + ("" if same else "   PREDICTIONS DIFFER"))


def exact_logits(support: Task, task: Task) -> Array:
    """Logits of a task's own images after an exact fit on `support`."""
    weight = exact(support, 1 / support.shots).weight
    return task.scale * unit_rows(task.linear.with_weight(weight)(task.x[0])) @ task.text.rows.T


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--only", nargs="+", default=["speed", "same"], choices=["speed", "same"])
    parser.add_argument("--shapes", nargs="+", help="parts of shape names, like n=76 ViT-B")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rates", nargs="+", type=float, default=RATES, help="Adam's learning rates")
    args = parser.parse_args()
    torch.set_flush_denormal(True)  # Adam's moments run into denormal numbers, which are slow
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads. Lifted: see tasks.py.")
    for shape in SHAPES:
        if args.shapes and not any(part in shape.name for part in args.shapes):
            continue
        task = shape.make(args.data)
        if "speed" in args.only:
            show_speed(shape, task, () if args.quick else args.rates)
        if "same" in args.only:
            show_same(shape, task)


if __name__ == "__main__":
    main()
