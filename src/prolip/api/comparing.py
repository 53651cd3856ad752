"""Every method that works on cached features, side by side on a user's own images."""

from collections.abc import Sequence

from prolip.api.adapt import read_support
from prolip.api.model import Recipe
from prolip.api.reading import Labelled, Progress, Reading
from prolip.core import UsageError
from prolip.encoders import Encoder
from prolip.evaluate.comparison import DEFAULT, Candidate, Comparison, compare_on
from prolip.export.write import formats
from prolip.methods.common.tower_method import TowerMethod


def compare(
    encoder: Encoder,
    labelled: Labelled,
    reading: Reading | None = None,
    *,
    recipe: Recipe | None = None,
    candidates: Sequence[Candidate] | None = None,
    shots: int | None = None,
    progress: Progress | None = None,
    fitting: Progress | None = None,
) -> Comparison:
    """Cross-validate methods on labelled images, and say which to take.

    Of `recipe`, the method is not looked at: `candidates` are held against the default, None is every one
    that trains no tower. `progress` and `fitting` are called with (done, total) images and methods.
    """
    recipe = recipe or Recipe()
    if candidates is not None:
        candidates = [DEFAULT, *(each for each in candidates if each != DEFAULT)]
        _check(candidates, recipe.seed)
    encoder, support = read_support(
        encoder, recipe, labelled, reading or Reading(), shots=shots, progress=progress
    )
    return compare_on(
        support.require_task(),
        candidates,
        seed=recipe.seed,
        exports=lambda fitted: formats(fitted, encoder),
        progress=fitting,
    )


def _check(candidates: Sequence[Candidate], seed: int) -> None:
    """Refuse wrong names and options before any image is encoded."""
    for each in candidates:
        if isinstance(each.create(seed), TowerMethod):
            raise UsageError(
                f"{each.method} trains through the model itself, minutes at a time: fit it, and compare what "
                "an evaluation says"
            )
