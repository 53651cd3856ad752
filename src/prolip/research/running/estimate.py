"""How long runs take: like others of their kind, or by the size of their problem."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from prolip.core import ProlipError
from prolip.methods.base import Method, Shape
from prolip.research.catalogue.published import BACKBONES, PROJECTIONS
from prolip.research.datasets import DATASETS
from prolip.research.protocols.run import Run
from prolip.research.running.result_key import runs_a_tower

_RATE = 7e10  # floating-point operations per second of one core
_EXACT_SECONDS = 6e-4  # of an exact fit, for each row of features
_TOWER_SECONDS = 300.0  # of a run through a tower: an order of magnitude
_EPOCHS = 300  # where a method has no option for them
_SHAPES = {BACKBONES[model]: shape for model, shape in PROJECTIONS.items()}  # runs in a store have no model


def guess_seconds(run: Run) -> float:
    """Guess the seconds of a run from the products of its fit and its test."""
    if runs_a_tower(run.method, run.protocol):
        return _TOWER_SECONDS
    known = DATASETS.get(run.dataset)
    classes, tested = (known.classes, known.sizes["test"]) if known else (20, 1000)
    dim, features = _SHAPES.get(run.encoder, (512, 768))
    support = classes * (run.shots or 64)
    try:
        method = run.create()
    except ProlipError:
        return 0.0  # it will fail with this error
    solver = getattr(method, "solver", None)
    if solver in ("adam", "sgd") or (solver is None and _trains_by_steps(method)):
        # An image meets every parameter, or every class, forwards and backwards; one view an epoch.
        size = max(method.count(Shape(features, dim, classes, support)), dim * classes)
        fit = 4 * support * size * (getattr(method, "epochs", None) or _EPOCHS) / _RATE
    else:
        fit = _EXACT_SECONDS * support * run.views
    fits = max(1, len(run.grid)) if run.method != "zero_shot" else 0
    return 0.02 + fits * fit + 2 * tested * dim * (features + classes) / _RATE


def _trains_by_steps(method: Method) -> bool:
    """Return whether a method without a choice of solvers has epochs, or trains the keys of a cache."""
    return hasattr(method, "epochs") or method.size.startswith("N x K")


@lru_cache(maxsize=1 << 16)
def kind_and_guess(run: str) -> tuple[str, float]:
    """Return what runs that take about as long have in common, all but the seed; and the seconds of a guess.

    It takes the run as JSON: all runs of an experiment are looked up twice a second while it runs.
    """
    known = Run.from_json(run)
    return replace(known, seed=0).to_json(), guess_seconds(known)


@dataclass
class Timings:
    """Runs, as JSON, that were timed. Others are guessed, in proportion to what those took."""

    _counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _timed: float = 0.0  # seconds of runs that can be guessed
    _guessed: float = 0.0  # what was guessed for them

    def add(self, run: str, seconds: float, count: int = 1) -> None:
        """Add runs of one kind, and the seconds that they took together."""
        kind, guess = kind_and_guess(run)
        self._counts[kind] += count
        self._seconds[kind] += seconds
        if guess:
            self._timed += seconds
            self._guessed += guess * count

    def knows(self, run: str) -> bool:
        """Return whether a run of the same kind was timed."""
        return kind_and_guess(run)[0] in self._counts

    def estimate(self, runs: Iterable[tuple[str, int]]) -> float:
        """Estimate the seconds of numbers of runs."""
        factor, total = self._timed / self._guessed if self._guessed else 1.0, 0.0
        for run, count in runs:
            kind, guess = kind_and_guess(run)
            known = self._seconds[kind] / self._counts[kind] if kind in self._counts else guess * factor
            total += count * known
        return total
