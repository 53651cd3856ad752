"""Every method that works on cached features, side by side on a user's own images."""

from collections.abc import Sequence
from functools import partial

from prolip.api.inputs import Labelled
from prolip.api.model import Recipe
from prolip.api.support import ImageSource, Progress
from prolip.core import UsageError
from prolip.evaluate.comparison import DEFAULT, Candidate, Comparison, compare_on
from prolip.export.write import formats


def compare(
    source: ImageSource,
    recipe: Recipe,
    labelled: Labelled,
    *,
    candidates: Sequence[Candidate | str] | None,
    shots: int | None,
    progress: Progress | None,
    fitting: Progress | None,
) -> Comparison:
    """Cross-validate methods on labelled images, and say which to take.

    Of `recipe`, the method is not looked at: `candidates`, or methods' names, are held against the default,
    None is every one that trains no tower. `progress` and `fitting` are called with (done, total) images and
    methods.
    """
    chosen = None
    if candidates is not None:
        if isinstance(candidates, str):
            raise UsageError(f"candidates are a list, like [{candidates!r}]")
        if not candidates:
            raise UsageError("candidates are empty: name methods, or leave them out for every method")
        named = [Candidate(each) if isinstance(each, str) else each for each in candidates]
        chosen = [DEFAULT, *(each for each in named if each != DEFAULT)]
        for each in chosen:  # wrong names and options are refused before any image is encoded
            if each.create(recipe.seed).trains_tower:
                raise UsageError(
                    f"{each.method} trains through the model itself, minutes at a time: fit it, and compare "
                    "what an evaluation says"
                )
    source = source.with_text(labelled.text)
    task = source.read(labelled, recipe, shots=shots, progress=progress).require_task()
    exports = partial(formats, encoder=source.encoder)
    return compare_on(task, chosen, seed=recipe.seed, exports=exports, progress=fitting)
