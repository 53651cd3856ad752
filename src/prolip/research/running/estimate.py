"""How long runs take: like others of their kind, or by the size of their problem."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

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


def kind(run: Run) -> str:
    """Return what runs that take about as long have in common: all but the seed."""
    return replace(run, seed=0).to_json()


@dataclass
class Timings:
    """Runs that were timed. Others are guessed, in proportion to what those took."""

    _counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _timed: float = 0.0  # seconds of runs that can be guessed
    _guessed: float = 0.0  # what was guessed for them

    def add(self, run: Run, seconds: float, count: int = 1) -> None:
        """Add runs of one kind, and the seconds that they took together."""
        self._counts[kind(run)] += count
        self._seconds[kind(run)] += seconds
        if guess := guess_seconds(run):
            self._timed += seconds
            self._guessed += guess * count

    def knows(self, run: Run) -> bool:
        """Return whether a run of the same kind was timed."""
        return kind(run) in self._counts

    def estimate(self, runs: Iterable[tuple[Run, int]]) -> float:
        """Estimate the seconds of numbers of runs."""
        factor = self._timed / self._guessed if self._guessed else 1.0
        return sum(
            count * (self._seconds[kind(run)] / self._counts[kind(run)])
            if self.knows(run)
            else count * guess_seconds(run) * factor
            for run, count in runs
        )
