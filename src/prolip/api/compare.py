"""Compare methods that work on cached features, and models, on labelled images."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from prolip.api.fit import read_support
from prolip.api.inputs import ReadOptions
from prolip.api.recipe import Recipe
from prolip.core import InputError, Task, UsageError
from prolip.data import ImageSet
from prolip.encoders import Encoder, check_model, is_packaged
from prolip.encoders.pretrained import MODELS
from prolip.evaluate.comparison import DEFAULT, Candidate, Comparison, Exports, ModelFacts, compare_models
from prolip.export.formats import formats
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
    for name, listed in (("candidates", candidates), ("models", models)):
        if isinstance(listed, str):
            raise UsageError(f"{name} must be a list, like [{listed!r}]")
        if listed is not None and not listed:
            raise UsageError(f"{name} are empty: name some, or leave it out")
    for model in models:
        if isinstance(model, str):
            check_model(model, require_here=not download)
    chosen = None
    if candidates is not None:
        named = [Candidate(each) if isinstance(each, str) else each for each in candidates]
        chosen = [DEFAULT, *(each for each in named if each != DEFAULT)]
        for each in chosen:  # refuse wrong names and options before any image is encoded
            if each.create(recipe.seed).trains_tower:
                raise UsageError(
                    f"{each.method} trains the encoder, for minutes: fit it, and compare by evaluation"
                )

    def read() -> Iterator[tuple[ModelFacts, Task, Exports]]:
        hashes = groups = None
        for model in models:
            encoder = load(model)
            support = read_support(encoder, images, recipe, reading, progress)
            if support.hashes != (hashes or support.hashes):
                raise InputError("images have changed while they were compared: compare again")
            task = support.require_task()
            hashes, groups = support.hashes, task.groups if groups is None else groups
            yield _facts(encoder), replace(task, groups=groups), partial(formats, encoder=encoder)

    return compare_models(read(), chosen, seed=recipe.seed, progress=fitting)


def _facts(encoder: Encoder) -> ModelFacts:
    """Return what it takes to use a model."""
    known = MODELS.get(encoder.name.partition("@")[0])
    return ModelFacts(
        encoder.name,
        0 if is_packaged(encoder.name) else known.megabytes if known else None,
        encoder.licence,
        known is None or known.free,
    )
