"""What every method is: options stored by the constructor, and `fit(task)`."""

from __future__ import annotations

import dataclasses
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from prolip.core import Fitted, HeldOut, Task

Progress = Callable[[int, int], None]  # (done, total)


@dataclass(frozen=True)
class Shape:
    """The sizes that decide how many numbers a method trains, in the paper's notation.

    Attributes
    ----------
    features
        Do, of the image features before the projection.
    dim
        D, of the shared space.
    classes
        K.
    images
        N x K, all images of the support set.
    text_features
        Dt, of the text features before the projection; None where they are not known.
    """

    features: int
    dim: int
    classes: int
    images: int
    text_features: int | None = None

    @classmethod
    def of(cls, task: Task) -> Shape:
        """The shape of a task."""
        inputs, dim = task.linear.weight.shape
        text = None if task.text.features is None else task.text.features.shape[2]
        return cls(inputs, dim, task.classes, task.n, text)


class Method(ABC):
    """A way to adapt a CLIP-like model on cached features.

    A method is a frozen dataclass whose fields are its options, with the defaults of its authors.

    Attributes
    ----------
    name
        In the registry, in files and on the command line.
    summary
        One line for `prolip methods`.
    open_class
        Whether the fitted model can be asked about classes that it was not fitted on.
    size
        How many numbers are trained, as the paper's "# params" column writes it.
    needs
        What has to be known of the model.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    open_class: ClassVar[bool]
    size: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ("image embeddings",)

    @classmethod
    def options(cls) -> list[str]:
        """The names of its options."""
        return [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]

    @classmethod
    def create(cls, **options: Any) -> Method:
        """The method with these options; each must be one of `options()`."""
        return cls(**options)

    @abstractmethod
    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Fitted:
        """Adapt to the support set.

        Parameters
        ----------
        task
            The support set.
        progress
            Called with (done, total) where there are steps to count.
        validation
            Further labelled images of the same classes, to choose hyperparameters on. Without it they are
            chosen inside the support set.
        """

    @abstractmethod
    def count(self, shape: Shape) -> int:
        """How many numbers are trained."""

    def parameters(self, task: Task) -> int:
        """How many numbers are trained on this task: the paper's "# params"."""
        return self.count(Shape.of(task))

    def report(self, task: Task, started: float, **more: Any) -> dict[str, Any]:
        """What `info` tells of every fit, and `more`; `started` is when the clock was read."""
        return {
            "method": self.name,
            "scale": task.scale,
            "parameters": self.parameters(task),
            **more,
            "seconds": time.perf_counter() - started,
        }

    def fit_held_out(
        self, task: Task, progress: Progress | None = None, seed: int = 0
    ) -> tuple[Fitted, HeldOut]:
        """The fit, and what models of the same options say about images that they were not fitted on.

        Folds are those of `assign_folds`. A search that has fitted them already hands on what it has.
        """
        from prolip.methods.search import cross_validate

        fitted = self.fit(task, progress)
        return fitted, cross_validate(self.settled(fitted.info), task, seed=seed)

    def settled(self, info: dict[str, Any]) -> Method:
        """The same method with what a fit chose (`info["chosen"]`) as its options: nothing left to search."""
        known = {field.name for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        chosen = {name: value for name, value in info.get("chosen", {}).items() if name in known}
        return dataclasses.replace(self, **chosen)  # type: ignore[type-var]
