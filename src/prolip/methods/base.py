"""What every method is: options stored by the constructor, and `fit(task)`."""

from __future__ import annotations

import dataclasses
import os
import time
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from types import NoneType
from typing import Any, ClassVar, TypeVar

from prolip.core import Fitted, HeldOutPredictions, InputError, Settings, Task, UsageError
from prolip.core.arrays import to_python_scalar
from prolip.methods.selection import Splits, cross_validate
from prolip.solvers.threads import single_thread

Progress = Callable[[int, int], None]  # (done, total)
AnyFitted = TypeVar("AnyFitted", bound=Fitted)

# What is declared: what is taken for it, and how that is said.
_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    int: ((Integral,), "a whole number"),
    float: ((Real,), "a number"),
    str: ((str, os.PathLike), "text"),
    bool: ((bool,), "true or false"),
    NoneType: ((NoneType,), "none"),
}


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


@dataclass(frozen=True, eq=False)
class Tuning:
    """A method with nothing left to choose, and what the search for it found."""

    method: Method
    report: dict[str, Any] = field(default_factory=dict)  # of the search, for people to read
    # Predictions for held-out support images under the choice, where the search has made them.
    held_out: HeldOutPredictions | None = None
    start: Any = None  # for `solve`


class Method(ABC):
    """A way to adapt a CLIP-like model: a frozen dataclass of options, with the defaults of its authors."""

    name: ClassVar[str]  # in the registry, in files and on the command line
    summary: ClassVar[str]  # one line for `prolip methods`
    open_class: ClassVar[bool] = False  # whether the fitted model can be asked about further classes
    size: ClassVar[str]  # how many numbers are trained, as the paper's "# params" column writes it
    needs: ClassVar[tuple[str, ...]] = ("image embeddings",)  # what has to be known of the model
    trains_tower: ClassVar[bool] = False  # a fit takes minutes, and is not cross-validated
    reads_images: ClassVar[bool] = False  # it runs the image tower: features are not enough

    @classmethod
    def options(cls) -> list[str]:
        """The names of its options."""
        return [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]

    @classmethod
    def create(cls, **options: Any) -> Method:
        """The method with these options; each must be one of `options()`."""
        return cls(**options)

    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Fitted:
        """Adapt to the support set: check, tune, solve, report.

        `progress` is called with (done, total) where there are steps to count. `validation` are further
        labelled images of the same classes, to choose hyperparameters or the best epoch on: without it they
        are chosen inside the support set, or fixed. Refused where there is nothing to choose.
        """
        return self._fit(task, progress, validation)[0]

    def fit_held_out(
        self, task: Task, progress: Progress | None = None, seed: int = 0
    ) -> tuple[Fitted, HeldOutPredictions]:
        """Fit, and predict each image of the support set by a fit of the same options without its fold.

        Folds are those of `assign_folds`. A search that has fitted them already hands on what it has.
        """
        if type(self).solve is Method.solve:
            from prolip.methods import from_settings

            fitted = self.fit(task, progress)
            return fitted, cross_validate(from_settings(fitted.settings), task, seed=seed)
        fitted, tuned = self._fit(task, progress)
        if tuned.held_out is not None and seed == getattr(self, "seed", 0):
            return fitted, tuned.held_out
        return fitted, cross_validate(tuned.method, task, seed=seed)

    def _fit(
        self, task: Task, progress: Progress | None = None, validation: Task | None = None
    ) -> tuple[Fitted, Tuning]:
        started = self.begin(task, validation)
        with single_thread():
            tuned = self.tune(task, Splits(task, validation, getattr(self, "seed", 0)))
            fitted = tuned.method.solve(task, FitContext(progress, validation, tuned.start))
        report = {"scale": getattr(fitted, "scale", task.scale), "parameters": tuned.method.parameters(task)}
        report |= {**tuned.report, **fitted.report, "seconds": time.perf_counter() - started}
        settings = fitted.settings if fitted.settings.method else tuned.method.to_settings()
        return dataclasses.replace(fitted, settings=settings, report=plain(report)), tuned

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Choose what the options leave open, on held-out images; by default there is nothing to choose."""
        return Tuning(self)

    def solve(self, task: Task, context: FitContext) -> Fitted:
        """Fit with options that leave nothing open. The only function that a method has to write.

        What comes back may have a `report` of the training, and `settings` where training settled an option.
        """
        raise NotImplementedError

    def prepare(self, task: Task, encoder: Any, templates: Sequence[str], pictures: Sequence[Any]) -> Task:
        """Return the task as the method takes it: with its encoder and images, where it trains a tower."""
        return task

    def chooses(self) -> bool:
        """Whether a validation set has something to decide: an option, an epoch."""
        return False

    def begin(self, task: Task, validation: Task | None = None) -> float:
        """Refuse a validation set that would be ignored, or has other classes; the time at the start."""
        if validation is not None and not self.chooses():
            raise UsageError(
                f"{self.name} has nothing to choose on a validation set with these options: leave out "
                "validation"
            )
        if validation is not None and validation.classes != task.classes:
            raise InputError(
                f"the validation set has {validation.classes} classes, the support set {task.classes}"
            )
        return time.perf_counter()

    @abstractmethod
    def count(self, shape: Shape) -> int:
        """How many numbers are trained."""

    def parameters(self, task: Task) -> int:
        """How many numbers are trained on this task: the paper's "# params"."""
        return self.count(Shape.of(task))

    def to_settings(self, **chosen: Any) -> Settings:
        """Its name and all its options, with what a fit chose in their place, as JSON has them."""
        from prolip.methods.common.plugins import name_of

        options = {name: getattr(self, name) for name in self.options()} | chosen
        return Settings(name_of(type(self)), plain(options))

    def finish(self, fitted: AnyFitted, task: Task, started: float, **figures: Any) -> AnyFitted:
        """A fitted model with its settings and report."""
        report = {"scale": task.scale, "parameters": self.parameters(task), **figures, **fitted.report}
        report["seconds"] = time.perf_counter() - started
        return dataclasses.replace(fitted, settings=self.to_settings(), report=plain(report))


def plain(value: Any) -> Any:
    """An option, or a figure, as JSON has it."""
    if isinstance(value, Mapping):
        return {str(name): plain(own) for name, own in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(own) for own in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    value = to_python_scalar(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise UsageError(
        f"options and figures are numbers, words, lists and mappings, got {type(value).__name__}"
    )


def check_type(owner: type, name: str, option: str, value: Any) -> None:
    """Refuse a value of another kind than the option's; what is declared as more than a scalar may be any.

    Examples
    --------
    >>> class Method:
    ...     epochs: int | None = None
    >>> check_type(Method, "coop", "epochs", 5)
    >>> check_type(Method, "coop", "epochs", "many")
    Traceback (most recent call last):
    prolip.core.errors.UsageError: option 'epochs' of coop must be a whole number or none, got 'many'
    """
    declared = typing.get_type_hints(owner).get(option, Any)
    kinds = typing.get_args(declared) or (declared,)
    if any(kind not in _KINDS for kind in kinds):
        return
    taken = tuple(each for kind in kinds for each in _KINDS[kind][0])
    if not isinstance(value, taken) or (isinstance(value, bool) and bool not in kinds):
        said = " or ".join(_KINDS[kind][1] for kind in kinds)
        raise UsageError(f"option {option!r} of {name} must be {said}, got {value!r}")
