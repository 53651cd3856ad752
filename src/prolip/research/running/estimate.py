"""How long runs take: like others of their kind, or by the size of their problem."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from prolip.core import ProlipError
from prolip.methods.base import Method, Shape
from prolip.research.catalogue.published import BACKBONES, PROJECTIONS
from prolip.research.datasets import DATASETS
from prolip.research.protocols.run import Run

_RATE = 7e10  # floating-point operations per second of one core
_EXACT_SECONDS = 6e-4  # of an exact fit, for each row of features
_EPOCHS = 300  # where a method has no option for them
_SHAPES = {BACKBONES[model]: shape for model, shape in PROJECTIONS.items()}  # runs in a store have no model
_IMAGE_PASS, _PROMPT_PASS = 3e10, 6e9  # operations of ViT-B/16's towers for an image and for a prompt
_BACKWARD = 3  # a pass forwards and backwards costs three times one forwards
_TEST_VIEWS = 64


def guess_seconds(run: Run) -> float:
    """Guess the seconds of a run from the products of its fit and its test."""
    known = DATASETS.get(run.dataset)
    classes, tested = (known.classes, known.sizes["test"]) if known else (20, 1000)
    dim, features = _SHAPES.get(run.encoder, (512, 768))
    support = classes * (run.shots or 64)
    try:
        method = run.create()
    except ProlipError:
        return 0.0  # it will fail with this error
    if run.runs_tower:
        tested += sum(DATASETS[name].sizes["test"] for name in run.targets if name in DATASETS)
        return _tower_seconds(run, method, classes, support, tested)
    solver = getattr(method, "solver", None)
    if solver in ("adam", "sgd") or (solver is None and _trains_by_steps(method)):
        # An image meets every parameter, or every class, forwards and backwards; one view an epoch.
        size = max(method.count(Shape(features, dim, classes, support)), dim * classes)
        fit = 4 * support * size * (getattr(method, "epochs", None) or _EPOCHS) / _RATE
    else:
        fit = _EXACT_SECONDS * support * run.views
    fits = max(1, len(run.grid)) if run.method != "zero_shot" else 0
    return 0.02 + fits * fit + 2 * tested * dim * (features + classes) / _RATE


def _tower_seconds(run: Run, method: Method, classes: int, support: int, tested: int) -> float:
    """Guess the seconds of a run through a tower from the images and the prompts that pass through it."""
    images = prompts = 0.0
    if run.protocol.startswith("test_time_"):
        images += _TEST_VIEWS * tested
        if run.protocol.endswith("tpt"):
            prompts += _BACKWARD * classes * tested
    if method.trains_tower:
        epochs = getattr(method, "epochs", None) or 100
        batch = getattr(method, "batch_size", 32)
        if method.reads_images:
            images += _BACKWARD * epochs * support + tested
        elif getattr(method, "view_area", None) is not None:
            images += epochs * support
        if hasattr(method, "init"):  # its prompts pass with every batch
            prompts += _BACKWARD * epochs * max(1, support // batch) * classes
    return (images * _IMAGE_PASS + prompts * _PROMPT_PASS) / _RATE


def _trains_by_steps(method: Method) -> bool:
    """Return whether a method without a choice of solvers has epochs, or trains the keys of a cache."""
    return hasattr(method, "epochs") or method.size.startswith("N x K")


class Timings:
    """Runs that were timed. Others are guessed, in proportion to what those took."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = defaultdict(
            list
        )  # by kind: all that is the same but the seed
        self._timed = self._guessed = 0.0

    def add(self, run: Run, seconds: float) -> None:
        """Add a run, and the seconds that it took."""
        self._seconds[_kind(run)].append(seconds)
        if guess := guess_seconds(run):
            self._timed += seconds
            self._guessed += guess

    def knows(self, run: Run) -> bool:
        """Return whether a run of the same kind was timed."""
        return _kind(run) in self._seconds

    def estimate(self, runs: Iterable[Run]) -> float:
        """Estimate the seconds of runs, one after the other."""
        factor, total = self._timed / self._guessed if self._guessed else 1.0, 0.0
        for run in runs:
            timed = self._seconds.get(_kind(run))
            total += sum(timed) / len(timed) if timed else factor * guess_seconds(run)
        return total


def _kind(run: Run) -> str:
    return replace(run, seed=0).to_json()
