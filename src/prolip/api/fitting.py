"""A fit, and what it may claim."""

from __future__ import annotations

from prolip.core import Fitted, Task
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.reject import Outsiders
from prolip.methods.common.method import Method, Progress
from prolip.methods.common.tower_method import TowerMethod


def fit_and_calibrate(
    method: Method, task: Task, seed: int, progress: Progress | None = None
) -> tuple[Fitted, Confidence]:
    """Adapt to the support set, and calibrate on answers about held-out images of it.

    Methods that train through a tower take minutes to fit, not moments: they are not cross-validated, and
    keep temperature 1.
    """
    if isinstance(method, TowerMethod):
        outsiders = None if method.reads_pictures else Outsiders.of(task)
        return method.fit(task, progress), Confidence(outsiders=outsiders)
    fitted, held_out = method.fit_held_out(task, progress, seed)
    return fitted, Confidence.of(fitted, task, held_out)
