"""What every method is: options stored by the constructor, and `fit(task)`.

A fit is the same for all: check, tune, solve, report. A method writes `solve`, and `tune` where it has
something to choose on held-out images.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import time
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np

from prolip.core import Fitted, HeldOutPredictions, InputError, Projected, Settings, Task, UsageError
from prolip.core.arrays import to_python_scalar
from prolip.core.capabilities import Capability
from prolip.core.errors import is_json_of
from prolip.methods.selection import Splits, Tuning, cross_validate
from prolip.solvers.threads import single_thread

Progress = Callable[[int, int], None]  # (done, total)


class OptionError(UsageError):
    """An option has a value that it cannot have."""

    def __init__(self, option: str, expected: str, value: Any) -> None:
        super().__init__(f"{option} must be {expected}, got {value!r}")
        self.option = option


@dataclass(frozen=True)
class Shape:
    """The sizes that decide how many numbers a method trains, in the paper's notation."""

    features: int  # Do, of the image features before the projection
    dim: int  # D, of the shared space
    classes: int  # K
    images: int  # N x K, all images of the support set
    text_features: int | None = None  # Dt, of the text features before the projection, where that is known

    @classmethod
    def of(cls, task: Task) -> Shape:
        """The shape of a task."""
        inputs, dim = task.linear.weight.shape
        text = None if task.text.features is None else task.text.features.shape[2]
        return cls(inputs, dim, task.classes, task.n, text)


@dataclass(frozen=True, eq=False)
class FitContext:
    """What `solve` gets beside the task."""

    progress: Progress | None = None
    validation: Task | None = None  # to keep the best epoch on
    start: Any = None  # what `tune` handed on
    unseen: bool = False  # whether the model will have classes that have no images in the task


class Method(ABC):
    """A way to adapt a CLIP-like model: a frozen dataclass of options, with the defaults of its authors."""

    name: ClassVar[str]  # in the registry, in files and on the command line
    summary: ClassVar[str]  # one line for `prolip methods`
    open_class: ClassVar[bool] = False  # whether the fitted model can classify further classes
    size: ClassVar[str]  # how many numbers are trained, as the paper's "# params" column writes it
    needs: ClassVar[Capability] = Capability.EMBEDDINGS  # of the model
    research: ClassVar[bool] = False  # for experiments: `prolip compare` leaves it out
    trains_tower: ClassVar[bool] = False  # a fit takes minutes, and is not cross-validated
    reads_images: ClassVar[bool] = False  # it runs the image tower: features are not enough
    redundant_on_black_box: ClassVar[bool] = False  # another method is the same where there is no head

    @classmethod
    def options(cls) -> list[str]:
        """The names of its options."""
        return [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]

    @final
    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Fitted:
        """Adapt to the support set: check, tune, solve, report.

        `progress` is called with (done, total) where there are steps to count. `validation` are further
        labelled images of the same classes, to choose hyperparameters or the best epoch on: without it they
        are chosen inside the support set, or fixed. Refused where there is nothing to choose.

        A method that stays open to other classes is fitted on the classes that have images: no image says
        that it is not of a class that has none. Those are scored by their texts, beside the others.
        """
        return self._fit(task, progress, validation)[0]

    @final
    def fit_held_out(
        self, task: Task, progress: Progress | None = None, seed: int = 0
    ) -> tuple[Fitted, HeldOutPredictions]:
        """Fit, and predict each image of the support set by a fit of the same options without its fold.

        Folds are those of `assign_folds`. A search that has fitted them already hands on what it has.
        """
        fitted, held_out = self._fit(task, progress, folds=seed)
        assert held_out is not None
        return fitted, held_out

    def _fit(
        self,
        task: Task,
        progress: Progress | None = None,
        validation: Task | None = None,
        folds: int | None = None,
    ) -> tuple[Fitted, HeldOutPredictions | None]:
        """Fit, and predict held-out images where the seed of the folds is given."""
        if validation is not None and not self.uses_validation():
            raise UsageError(f"{self.name} has nothing to choose on a validation set with these options")
        if validation is not None and validation.classes != task.classes:
            raise InputError(f"the validation set has {validation.classes} classes, not {task.classes}")
        started = time.perf_counter()
        fitted: Fitted
        held_out: HeldOutPredictions | None = None
        seen = np.unique(task.y) if self.open_class else np.arange(task.classes)
        unseen = len(seen) < task.classes
        if len(seen) == 1:  # nothing to tell apart: the texts are all there is
            fitted = Projected(task.linear, task.text, task.scale, settings=self.to_settings())
            report = {"scale": task.scale, "parameters": 0, "seconds": time.perf_counter() - started}
            none = np.zeros(0, int)
            return replace(fitted, report=report), HeldOutPredictions(np.zeros((0, task.classes)), none, none)
        own = task.select_classes(seen) if unseen else task
        with single_thread():
            tuning = self.tune(own, Splits(own, validation, getattr(self, "seed", 0)))
            method, context = tuning.method, FitContext(progress, validation, tuning.start, unseen)
            if unseen:
                fitted = method.solve(own, context).with_text(task.text)
                held_out = None if folds is None else cross_validate(method, task, seed=folds)
            elif folds is None:
                fitted = method.solve(task, context)
            elif tuning.held_out is not None and folds == getattr(self, "seed", 0):
                fitted, held_out = method.solve(task, context), tuning.held_out
            else:
                fitted, held_out = method.solve_with_folds(task, context, folds)
        report = {"scale": getattr(fitted, "scale", task.scale), "parameters": method.parameters(own)}
        report |= {**tuning.report, **fitted.report, "seconds": time.perf_counter() - started}
        settings = fitted.settings if fitted.settings.method else method.to_settings()
        return replace(fitted, settings=settings, report=plain(report)), held_out

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Choose what the options leave open, on held-out images; by default there is nothing to choose."""
        return Tuning(self)

    @abstractmethod
    def solve(self, task: Task, context: FitContext) -> Fitted:
        """Fit with options that leave nothing open.

        What comes back may have a `report` of the training, and `settings` where training settled an option.
        """

    def solve_with_folds(
        self, task: Task, context: FitContext, seed: int
    ) -> tuple[Fitted, HeldOutPredictions]:
        """Return `solve`, and predictions for held-out images: a method may share work between the two."""
        return self.solve(task, context), cross_validate(self, task, seed=seed)

    def fit_parts(self, task: Task, parts: Sequence[Any]) -> Iterator[Fitted]:
        """Yield a fit on each part of the images [m], with nothing left to tune: of folds, for example."""
        for part in parts:
            yield self.fit(task.subset(part))

    def count(self, shape: Shape) -> int:
        """Return how many numbers are trained: `size`, computed."""
        return count_parameters(self.size, shape)

    def needs_tuning(self) -> bool:
        """Whether `tune` has something to choose."""
        return False

    def uses_validation(self) -> bool:
        """Whether a validation set has something to decide: an option, or the best epoch."""
        return self.needs_tuning()

    def prepare(self, task: Task, encoder: Any, templates: Sequence[str], images: Sequence[Any]) -> Task:
        """Return the task as the method takes it: with its encoder and images, where it trains a tower."""
        return task

    def parameters(self, task: Task) -> int:
        """Return how many numbers are trained on this task: the paper's "# params"."""
        return self.count(Shape.of(task))

    def to_settings(self) -> Settings:
        """Return its name, or its place where it has none, and all its options, as JSON has them."""
        cls = type(self)
        place = f"{cls.__module__}:{cls.__qualname__}"
        name = next((name for name, known in REGISTERED.items() if known is cls), place)
        return Settings(name, plain({option: getattr(self, option) for option in self.options()}))


REGISTERED: dict[str, type[Method]] = {}  # what `registry` knows, by name


def plain(value: Any) -> Any:
    """An option, or a figure, as JSON has it."""
    return json.loads(json.dumps(value, default=to_python_scalar))


def check_type(owner: type, option: str, value: Any) -> None:
    """Refuse a value that is not of the option's type.

    Examples
    --------
    >>> class Method:
    ...     epochs: int | None = None
    >>> check_type(Method, "epochs", 5)
    >>> check_type(Method, "epochs", "many")
    Traceback (most recent call last):
    prolip.methods.base.OptionError: epochs must be of the type int | None, got 'many'
    """
    hint = typing.get_type_hints(owner).get(option, Any)
    if not is_json_of(to_python_scalar(value), hint):
        raise OptionError(option, f"of the type {inspect.formatannotation(hint)}", value)


def count_parameters(size: str, shape: Shape) -> int:
    """Compute a size as the paper writes it: "Do x D".

    Examples
    --------
    >>> count_parameters("2 x D/4 x D", Shape(features=2048, dim=1024, classes=100, images=1600))
    524288
    """
    letters = {
        "Do": shape.features,
        "D": shape.dim,
        "K": shape.classes,
        "N": shape.images / shape.classes,
        "Dt": shape.text_features or shape.dim,
    }
    count: float = eval(size.replace(" x ", " * "), {"__builtins__": {}}, letters)
    return round(count)
