"""Compare methods that work on cached features, and models, on labelled images."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from prolip.api.fit import read_support
from prolip.api.inputs import ReadOptions
from prolip.api.recipe import Recipe
from prolip.core import InputError, Task, UsageError
from prolip.data import ImageSet
from prolip.encoders import Encoder, check_model
from prolip.evaluate.comparison import DEFAULT, Candidate, Comparison, compare_models
from prolip.io.progress import Progress


def compare(
    models: Sequence[str | Encoder],
    load: Callable[[str | Encoder], Encoder],
    recipe: Recipe,
    images: ImageSet,
    reading: ReadOptions,
    *,
    candidates: Sequence[Candidate | str] | None,
    download: bool,
    progress: Progress | None,
    fitting: Progress | None,
) -> Comparison:
    """Cross-validate methods on labelled images, in the features of each model, and recommend one.

    `load` loads a model; one at a time is in memory. `candidates`, or names of methods, are compared
    with the default, whatever the method of `recipe`; None is every method that trains no tower. `progress`
    and `fitting` are called with (done, total) images and methods of each model.
    """
    for name, values in (("candidates", candidates), ("models", models)):
        if isinstance(values, str) or (values is not None and not values):
            raise UsageError(f"{name} must be a list of names, got {values!r}")
    for model in models:
        if isinstance(model, str):
            check_model(model, require_here=not download)
    chosen = None
    if candidates is not None:
        named = [Candidate(item) if isinstance(item, str) else item for item in candidates]
        chosen = [DEFAULT, *(candidate for candidate in named if candidate != DEFAULT)]
        for candidate in chosen:  # refuse wrong names and options before any image is encoded
            if candidate.create(recipe.seed).trains_tower:
                raise UsageError(f"{candidate} trains the encoder, for minutes: it is for `prolip bench run`")

    def read() -> Iterator[tuple[str, Task]]:
        first = None
        for model in models:
            encoder = load(model)
            support = read_support(encoder, images, recipe, reading, progress)
            first = first or support
            if support.hashes != first.hashes:
                raise InputError("images have changed while they were compared: compare again")
            yield encoder.name, replace(support.require_task(), groups=first.require_task().groups)

    return compare_models(read(), chosen, seed=recipe.seed, progress=fitting)
