"""Compare methods that work on cached features, on labelled images."""

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
    progress: Progress | None,
    fitting: Progress | None,
) -> Comparison:
    """Cross-validate methods on labelled images, and recommend one.

    `candidates`, or names of methods, are compared with the default, whatever the method of `recipe`; None is
    every method that trains no tower. `progress` and `fitting` are called with (done, total) images and
    methods.
    """
    chosen = None
    if candidates is not None:
        if isinstance(candidates, str):
            raise UsageError(f"candidates must be a list, like [{candidates!r}]")
        if not candidates:
            raise UsageError("candidates are empty: name methods, or leave it out for every method")
        named = [Candidate(each) if isinstance(each, str) else each for each in candidates]
        chosen = [DEFAULT, *(each for each in named if each != DEFAULT)]
        for each in chosen:  # refuse wrong names and options before any image is encoded
            if each.create(recipe.seed).trains_tower:
                raise UsageError(
                    f"{each.method} trains the encoder, for minutes: fit it, and compare by evaluation"
                )
    source = source.with_text(labelled.text)
    task = source.read(labelled, recipe, progress).require_task()
    exports = partial(formats, encoder=source.encoder)
    return compare_on(task, chosen, seed=recipe.seed, exports=exports, progress=fitting)
