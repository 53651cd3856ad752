"""The exact fit beside the paper's Adam, and lam = "auto" beside 1/N, on the same tasks in one run.

    python benchmarks/solver.py [--data ../shared/data] [--only speed auto same accuracy] [--quick]

`speed`: seconds, objective, evaluations, zero-shot passes over the support and peak memory, at lam = 1/N; the
reference is Adam's best objective over four learning rates, 300 epochs each. `auto`: what choosing lam and
fitting costs, in reference fits. `same`: how far logits move when the samples come in another order, with
another number of threads, or as x a with W0 / a. `accuracy`: on five sets, 1 to 16 images per class.
`--quick` compares no objectives. Each line shows what was asked for. Factors are ratios of processor time,
which other work on the machine disturbs least; seconds are wall time.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from prolip import Task
from prolip.solvers import adam, automatic, exact
from solver_tasks import few_shot, lifted_imagenet, lifted_whu, photos, unit, whu

RATES = (1e-4, 1e-3, 1e-2, 1e-5)
EPOCHS = 300
SETS = ("WHU-RS19 RN50", "WHU-RS19 ViT-B/32", "pets37", "dtd10", "clothing10")


@dataclass(frozen=True)
class Shape:
    """A task to time, and what is asked of it."""

    name: str
    make: Callable[[Path], Task]
    faster: float | None = None  # than the reference
    passes: float | None = None  # zero-shot passes at most
    auto: float | None = None  # cost of "auto" at most, in reference fits
    repeats: int = 5


SHAPES = (
    Shape("n=19 K=19 RN50 lifted", lambda d: lifted_whu(d, 1, 2048), 100, None, 1),
    Shape("n=76 K=19 RN50 lifted", lambda d: lifted_whu(d, 4, 2048), 100, None, 1),
    Shape("n=304 K=19 RN50 lifted", lambda d: lifted_whu(d, 16, 2048), 40, None, 1),
    Shape("n=760 K=19 RN50 lifted", lambda d: lifted_whu(d, 40, 2048), 20, 60, 1, 3),
    Shape("n=752 K=47 RN50 lifted", lambda d: lifted_imagenet(d, 47, 16, 2048, 1024), 20, 60, 1, 3),
    Shape("n=1600 K=100 RN50 lifted", lambda d: lifted_imagenet(d, 100, 16, 2048, 1024), 12, 60, 2, 3),
    Shape("n=400 K=100 ViT-B lifted", lambda d: lifted_imagenet(d, 100, 4, 768, 512), 8, None, 1),
    Shape("n=4000 K=1000 ViT-B lifted", lambda d: lifted_imagenet(d, 1000, 4, 768, 512), 15, 60, None, 2),
    Shape("n=592 K=37 pets37 offline", lambda d: photos(d, "pets37")[0], None, None, 1, 3),
    Shape("n=160 K=10 dtd10 offline", lambda d: photos(d, "dtd10")[0], None, None, 1, 3),
    Shape("n=16000 K=1000 RN50 lifted", lambda d: lifted_imagenet(d, 1000, 16, 2048, 1024), 12, 60, None, 1),
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
    print(
        f"{'ok  ' if met else 'LESS'}  {what:<46} {seen}" + (f"   asked: {asked}" if asked else ""),
        flush=True,
    )


@dataclass(frozen=True)
class Cost:
    """Seconds on the clock and of the processor."""

    wall: float
    cpu: float


def cost(work: Callable[[], object], repeats: int = 1) -> Cost:
    """The median of several runs."""
    walls, cpus = [], []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return Cost(statistics.median(walls), statistics.median(cpus))


def zero_shot(task: Task) -> None:
    """One pass: embed, normalise, compare with the texts."""
    unit(task.linear(task.x[0]), dim=1) @ task.text.rows.T


def recipe(task: Task, lam: float, epochs: int) -> None:
    """The paper's fit as it is usually written: PyTorch's autograd, Adam and cosine schedule."""
    x, w0, text = task.x[0], task.linear.weight, task.text.rows
    weight = torch.nn.Parameter(w0.clone())
    optimizer = torch.optim.Adam([weight], lr=1e-4, eps=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        logits = task.scale * unit(x @ weight, dim=1) @ text.T
        loss = torch.nn.functional.cross_entropy(logits, task.y) + lam * (weight - w0).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def reference(
    task: Task, lam: float, quick: bool, rates: Sequence[float] = RATES
) -> tuple[Cost, float | None]:
    """Cost of one fit, and the best objective of the learning rates.

    Every epoch costs the same: some are timed and multiplied. The objectives come from our own loop, which
    takes the same steps and is quicker on small tasks.
    """
    recipe(task, lam, 1)
    epochs, repeats = (60, 5) if task.n <= 160 else (20, 3) if task.n <= 1600 else (8, 1)
    few, more = (cost(lambda n=n: recipe(task, lam, n), repeats) for n in (2, 2 + epochs))
    share = EPOCHS / epochs
    whole = Cost((more.wall - few.wall) * share, (more.cpu - few.cpu) * share)
    if quick:
        return whole, None
    return whole, min(adam(task, lam, lr=rate, epochs=EPOCHS).objective for rate in rates)


def show_speed(shape: Shape, task: Task, quick: bool, rates: Sequence[float]) -> Cost:
    """Both solvers at lam = 1/N, ours before and after the reference; the cost of the reference."""
    lam = 1 / task.shots
    fits = []

    def ours() -> None:
        fits.append(exact(task, lam))

    with Peak() as peak:
        ours()  # also brings threads and memory pools up before the clock starts
    before, pass_before = cost(ours, shape.repeats), cost(lambda: zero_shot(task), 5)
    theirs, best = reference(task, lam, quick, rates)
    after, pass_after = cost(ours, shape.repeats), cost(lambda: zero_shot(task), 5)
    mine = Cost((before.wall + after.wall) / 2, (before.cpu + after.cpu) / 2)
    one_pass = (pass_before.cpu + pass_after.cpu) / 2
    factor, passes, solution = theirs.cpu / mine.cpu, mine.cpu / one_pass, fits[-1]
    large, known = task.n == 16000, "-" if best is None else f"{best:.5f}"
    seen = (
        f"{factor:6.1f}x ({theirs.wall / mine.wall:.1f}x on the clock)   {mine.wall:.4f} s against "
        f"{theirs.wall:.2f} s   objective {solution.objective:.5f} / {known}   "
        f"{solution.evaluations} evaluations   {passes:.1f} passes ({theirs.cpu / one_pass:.0f})   "
        f"{peak.gigabytes:.2f} GB"
    )
    asked = [f"{shape.faster:g}x"] if shape.faster else []
    asked += ["objective no higher"]
    asked += [f"{shape.passes:g} passes"] if shape.passes else []
    asked += ["2.5 GB"] if large else []
    met = (
        (shape.faster is None or factor >= shape.faster)
        and (shape.passes is None or passes <= shape.passes)
        and (best is None or solution.objective <= best * (1 + 1e-6))
        and (not large or peak.gigabytes < 2.5)
    )
    report(shape.name, seen, ", ".join(asked), met)
    return theirs


def show_auto(shape: Shape, task: Task, theirs: Cost) -> None:
    """Choosing lam and fitting, everything included."""
    mine = cost(lambda: automatic(task), 2)
    share = mine.cpu / theirs.cpu
    asked = "" if shape.auto is None else f"at most {shape.auto:g}"
    seen = f"{mine.wall:.3f} s = {share:.3f} reference fits"
    report(f"auto, {shape.name}", seen, asked, shape.auto is None or share <= shape.auto)


def show_same(shape: Shape, task: Task) -> None:
    """Largest change of any logit of the support, at 1/N and for "auto"."""
    order = torch.randperm(task.n, generator=torch.Generator().manual_seed(0))
    head = replace(task.linear, weight=task.linear.weight / 10)
    scaled = Task(10 * task.x, task.y, task.text, head, task.scale)
    threads = torch.get_num_threads()
    ways: dict[str, Callable[[Task], torch.Tensor]] = {
        "1/N": lambda t: exact(t, 1 / t.shots).weight,
        "auto": lambda t: automatic(t)[0].weight,
    }
    if task.n > 1600:
        del ways["auto"]  # minutes
    for way, fit in ways.items():
        first = logits(task, fit(task))
        moved = {"order": (logits(task, fit(task.subset(order))) - first).abs().max()}
        torch.set_num_threads(1 if threads > 1 else 2)
        moved["threads"] = (logits(task, fit(task)) - first).abs().max()
        torch.set_num_threads(threads)
        if way == "auto":
            moved["rescaled"] = (logits(scaled, fit(scaled)) - first).abs().max()
        seen = "   ".join(f"{what} {float(most):.0e}" for what, most in moved.items())
        report(f"same, {way}, {shape.name}", seen, "1e-04", max(moved.values()) <= 1.05e-4)


def logits(task: Task, weight: torch.Tensor) -> torch.Tensor:
    """Of the support set."""
    return task.scale * unit(task.linear.with_weight(weight)(task.x[0]), dim=1) @ task.text.rows.T


def splits(data: Path, name: str, shots: int, seed: int) -> tuple[Task, torch.Tensor, torch.Tensor]:
    """A few-shot task, and the test images."""
    if name.startswith("WHU"):
        x, y, rows = whu(data, "rn50" if name.endswith("RN50") else "vit_b_32")
        picked = few_shot(y, shots, seed)
        held_out = torch.ones(len(y), dtype=torch.bool)
        held_out[picked] = False
        return Task(x[picked], y[picked], rows), x[held_out], y[held_out]
    task, x, y = photos(data, name)
    return task.subset(few_shot(task.y, shots, seed)), x, y


def accuracy(task: Task, weight: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> float:
    embedded = task.linear.with_weight(weight)(x)
    return float(((embedded @ task.text.rows.T).argmax(dim=1) == y).double().mean())


def logistic_regression(task: Task, x: torch.Tensor, y: torch.Tensor) -> float:
    """scikit-learn's, C by 5-fold cross-validation, on the same features."""
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.model_selection import StratifiedKFold

    folds = StratifiedKFold(min(5, int(task.shots)), shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # iterations run out at the largest C
        model = LogisticRegressionCV(Cs=[10.0**k for k in range(-4, 3)], cv=folds, max_iter=200, tol=1e-3)
        model.fit(task.x[0].numpy(), task.y.numpy())
    return float(model.score(x.numpy(), y.numpy()))


def show_accuracy(data: Path, seeds: int) -> None:
    """Means over seeds, percent: "auto" with the scale chosen too, with the scale fixed, 1/N, regression."""
    gains = {}
    for shots in (1, 2, 4, 16):
        rows = [mean_scores(data, name, shots, seeds) for name in SETS]
        for name, row in zip(SETS, rows, strict=True):
            seen = f"auto {row[0]:.1f}  scale fixed {row[1]:.1f}  1/N {row[2]:.1f}"
            seen += f"  regression {row[3]:.1f}" if len(row) > 3 else ""
            report(f"{name}, {shots} per class", seen, "at most 1.0 below 1/N", row[0] > row[2] - 1)
        auto, fixed, plain = (statistics.mean(row[i] for row in rows) for i in range(3))
        gains[shots] = auto - plain
        seen = f"auto {auto:.2f}  scale fixed {fixed:.2f}  1/N {plain:.2f}"
        asked = "not below 1/N" if shots == 1 else ""
        report(f"mean, {shots} per class", seen, asked, shots > 1 or auto >= plain)
        photo = [row for row in rows if len(row) > 3]
        if photo:
            ours, theirs = statistics.mean(r[0] for r in photo), statistics.mean(r[3] for r in photo)
            seen = f"auto {ours:.2f}  regression {theirs:.2f}"
            report(f"offline mean, {shots} per class", seen, "not below regression", ours >= theirs)
    gain = (gains[4] + gains[16]) / 2
    report("mean of 4 and 16 per class", f"auto {gain:+.2f} over 1/N", "+1.5", gain >= 1.5)


def mean_scores(data: Path, name: str, shots: int, seeds: int) -> list[float]:
    """Percent, over seeds: the columns of `show_accuracy`, regression where it applies."""
    scores = []
    for seed in range(seeds):
        task, x, y = splits(data, name, shots, seed)
        weights = (
            automatic(task, seed=seed)[0].weight,
            automatic(task, scale="fixed", seed=seed)[0].weight,
            exact(task, 1 / task.shots).weight,
        )
        scores.append([accuracy(task, weight, x, y) for weight in weights])
        if shots >= 4 and not task.black_box:
            scores[-1].append(logistic_regression(task, x, y))
    return [100 * statistics.mean(column) for column in zip(*scores, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--only", nargs="+", default=["speed", "auto", "same", "accuracy"])
    parser.add_argument("--shapes", nargs="+", help="parts of shape names, like n=76 ViT-B")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rates", nargs="+", type=float, default=RATES, help="Adam's learning rates")
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    torch.set_flush_denormal(True)  # for both sides
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads. Lifted: see solver_tasks.py.")
    for shape in SHAPES if {"speed", "auto", "same"} & set(args.only) else ():
        if args.shapes and not any(part in shape.name for part in args.shapes):
            continue
        try:
            task = shape.make(args.data)
        except (FileNotFoundError, ImportError) as error:
            print(f"skip  {shape.name}: {error}")
            continue
        theirs = show_speed(shape, task, args.quick, args.rates) if "speed" in args.only else None
        if "auto" in args.only and shape.auto:
            show_auto(shape, task, theirs or reference(task, 1 / task.shots, quick=True)[0])
        if "same" in args.only:
            show_same(shape, task)
    if "accuracy" in args.only:
        try:
            show_accuracy(args.data, args.seeds)
        except (FileNotFoundError, ImportError) as error:
            print(f"skip  accuracy: {error}")


if __name__ == "__main__":
    main()
