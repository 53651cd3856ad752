"""What every method is: options stored by the constructor, and `fit(task)`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from prolip.core import Fitted, Task

Progress = Callable[[int, int], None]  # (done, total)


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
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    open_class: ClassVar[bool]

    @abstractmethod
    def fit(self, task: Task, progress: Progress | None = None) -> Fitted:
        """Adapt to the support set."""

    @abstractmethod
    def parameters(self, task: Task) -> int:
        """How many numbers are trained: the paper's "# params"."""
