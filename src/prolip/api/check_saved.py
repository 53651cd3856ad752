"""Validation of saved models, which may come from anyone."""

from dataclasses import replace
from typing import Any, get_type_hints

import numpy as np

from prolip.api.recipe import Recipe
from prolip.core import Fitted, HeldOutPredictions, SavedModelError, Task
from prolip.core.arguments import is_json_of
from prolip.core.arrays import Array
from prolip.core.names import normalize_label
from prolip.encoders import Encoder
from prolip.evaluate.out_of_distribution import OutOfDistribution

MAX_VALUE = 1e12  # of a tensor or a logit: products of three are still float32

_FIELDS = {
    "model": str, "fingerprint": str, "recipe": dict, "settings": dict, "kind": str, "config": dict,
    "temperature": float, "classes": list, "fit": dict, "held_out": dict,
}  # fmt: skip


def check_config(config: dict[str, Any]) -> None:
    """Refuse JSON with missing fields, or fields of another type."""
    _check_fields("its JSON", config, _FIELDS)
    _check_fields("its settings", config["settings"], {"method": str, "options": dict})
    _check_fields("its fit", config["fit"], {"images": int, "shots": float})
    names = config["classes"]
    if not all(name == normalize_label(name) and is_json_of(name, str | float | bool) for name in names):
        raise SavedModelError("its classes are not names")
    if not names or len(set(map(str, names))) < len(names):
        raise SavedModelError("its classes are not all different")
    if not 1e-6 < config["temperature"] < 1e6:
        raise SavedModelError(f"its temperature is {config['temperature']}")


def recipe_of(config: dict[str, Any]) -> Recipe:
    """Return the recipe, checked as far as possible without importing the method.

    What it lacks, such as an option that a later version added, has its default.
    """
    hints = get_type_hints(Recipe)
    _check_fields("its recipe", config["recipe"], {name: hints.get(name) for name in config["recipe"]})
    recipe = Recipe(**config["recipe"])
    prompts = tuple(config.get("templates") or ())  # those of the fit, should the default have changed
    return recipe if prompts in ((), recipe.prompts) else replace(recipe, templates=prompts)


def _check_fields(what: str, values: dict[str, Any], hints: dict[str, Any]) -> None:
    for name, hint in hints.items():
        if name not in values:
            raise SavedModelError(f"{what} lacks {name!r}")
        if hint is None or not is_json_of(values[name], hint):
            raise SavedModelError(f"{what} has {name} = {str(values[name])[:100]!r}")


def check_tensors(tensors: dict[str, Array]) -> None:
    """Refuse arrays of other things than finite, moderate numbers."""
    for name, array in tensors.items():
        if array.dtype.kind not in "fiu" or not float(np.abs(array).max(initial=0)) < MAX_VALUE:
            raise SavedModelError(f"{name} has other values than numbers below {MAX_VALUE:g}")


def held_out_of(tensors: dict[str, Array], task: Task) -> HeldOutPredictions:
    """Return the predictions for held-out training images."""
    logits, images = tensors["held_out"], tensors["held_out_images"]
    known = np.isin(images, np.arange(task.n)).all() and np.unique(images).size == images.size
    if logits.shape != (images.size, task.classes) or images.ndim != 1 or not known:
        raise SavedModelError(f"its {list(logits.shape)} held-out predictions are not of training images")
    images = images.astype(np.int64)
    return HeldOutPredictions(logits, task.y[images], images)


def check_out_of_distribution(out_of_distribution: OutOfDistribution, encoder: Encoder, classes: int) -> None:
    """Refuse class means for other classes or features."""
    out = out_of_distribution
    shapes, width = (
        [array.shape for array in (out.means, out.negatives, out.scores)],
        len(encoder.head.weight),
    )
    if shapes != [(classes, width), (len(out.negatives), width), (out.scores.size or 1,)]:
        raise SavedModelError(f"its out-of-distribution scores have the shapes {list(map(list, shapes))}")


def check_fitted(fitted: Fitted, tensors: dict[str, Array], encoder: Encoder, classes: int) -> None:
    """Refuse a model with other arrays than were saved, or without finite logits."""
    restored, saved = (
        {name: (array.shape, array.dtype) for name, array in arrays.items()}
        for arrays in (fitted.tensors(), tensors)
    )
    if differing := sorted(dict(restored.items() ^ saved.items())):
        raise SavedModelError(f"{differing[0]!r} does not belong to a model of kind {fitted.kind!r}")
    width = fitted.encoder_for(encoder).width
    x = np.random.default_rng(0).standard_normal((2, width), dtype=np.float32)
    with np.errstate(all="ignore"):
        logits = fitted.logits(x)
    if logits.shape != (2, classes) or not (np.abs(logits) < MAX_VALUE).all():
        raise SavedModelError(f"it gives no logits for its {classes} classes")
