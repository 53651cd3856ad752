"""Validation of saved models, which may come from anyone."""

from dataclasses import replace
from typing import Any, get_type_hints

import numpy as np

from prolip.api.recipe import Recipe
from prolip.core import Fitted, HeldOutPredictions, SavedModelError, Settings, Task
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
    _check("its JSON", config, _FIELDS)
    names, fit = config["classes"], config["fit"]
    if not all(name == normalize_label(name) and is_json_of(name, str | float | bool) for name in names):
        raise SavedModelError("its classes are not names")
    if not names or len(set(map(str, names))) < len(names):
        raise SavedModelError("its classes are not all different")
    if not (is_json_of(fit.get("images"), int) and is_json_of(fit.get("shots"), float)):
        raise SavedModelError("it does not say how many images were fitted")
    if not 1e-6 < config["temperature"] < 1e6:
        raise SavedModelError(f"its temperature is {config['temperature']}")


def recipe_of(config: dict[str, Any]) -> Recipe:
    """Return the recipe, checked as far as possible without importing the method.

    What it lacks, such as an option that a later version added, has its default.
    """
    saved, hints = dict(config["recipe"]), get_type_hints(Recipe)
    _check("its recipe", saved, {name: hint for name, hint in hints.items() if name in saved}, exact=True)
    recipe = Recipe(**saved)
    prompts = tuple(config.get("templates") or ())  # those of the fit, should the default have changed
    return recipe if prompts in ((), recipe.prompts) else replace(recipe, templates=prompts)


def settings_of(config: dict[str, Any]) -> Settings:
    """Return the settings of the fit."""
    _check("its settings", config["settings"], {"method": str, "options": dict}, exact=True)
    return Settings(**config["settings"])


def _check(what: str, found: dict[str, Any], hints: dict[str, Any], exact: bool = False) -> None:
    for name, hint in hints.items():
        if name not in found:
            raise SavedModelError(f"{what} lacks {name!r}")
        if not is_json_of(found[name], hint):
            raise SavedModelError(f"{what} has {name} = {str(found[name])[:100]!r}")
    if exact and (more := sorted(found.keys() - hints.keys())):
        raise SavedModelError(f"{what} has an unknown {more[0]!r}")


def check_tensors(tensors: dict[str, Array]) -> None:
    """Refuse arrays of other things than finite, moderate numbers."""
    for name, array in tensors.items():
        if array.dtype.kind not in "fiu" or not (np.abs(array) < MAX_VALUE).all():
            raise SavedModelError(f"{name} has other values than numbers below {MAX_VALUE:g}")


def held_out_of(tensors: dict[str, Array], task: Task) -> HeldOutPredictions:
    """Return the predictions for held-out training images."""
    logits, images = tensors["held_out"], tensors.get("held_out_images", np.zeros(0))
    known = np.isin(images, np.arange(task.n)).all() and np.unique(images).size == images.size
    if logits.shape != (images.size, task.classes) or images.ndim != 1 or not known:
        raise SavedModelError(
            f"its held-out predictions are {list(logits.shape)} for images {list(images.shape)}"
        )
    if not (np.abs(logits) <= MAX_VALUE).all():
        raise SavedModelError("its held-out predictions have extreme values")
    images = images.astype(np.int64)
    return HeldOutPredictions(logits, task.y[images], images)


def hashes_of(array: Array) -> tuple[bytes, ...]:
    """Return the SHA-256 of each training image."""
    if array.dtype != np.uint8 or array.ndim != 2 or array.shape[1] != 32:
        raise SavedModelError(f"the hashes of its images are {array.dtype} {list(array.shape)}")
    return tuple(row.tobytes() for row in array)


def check_out_of_distribution(out_of_distribution: OutOfDistribution, encoder: Encoder, classes: int) -> None:
    """Refuse class means for other classes or features."""
    out = out_of_distribution
    shapes = [array.shape for array in (out.means, out.scores, out.unknown_scores)]
    images = shapes[1][0] if len(shapes[1]) == 1 else 0
    if not images or shapes != [(classes, len(encoder.head.weight)), (images,), (images,)]:
        raise SavedModelError(f"its out-of-distribution scores have the shapes {list(map(list, shapes))}")


def check_fitted(fitted: Fitted, tensors: dict[str, Array], encoder: Encoder, classes: int) -> None:
    """Refuse a model with other arrays than were saved, or without finite logits."""
    restored = {name: (array.shape, array.dtype) for name, array in fitted.tensors().items()}
    saved = {name: (array.shape, array.dtype) for name, array in tensors.items()}
    if restored != saved:
        differing = sorted(
            name for name in restored.keys() | saved.keys() if restored.get(name) != saved.get(name)
        )
        raise SavedModelError(f"{differing[0]!r} does not belong to a model of kind {fitted.kind!r}")
    width = fitted.encoder_for(encoder).width
    x = np.random.default_rng(0).standard_normal((2, width), dtype=np.float32)
    with np.errstate(all="ignore"):
        logits = fitted.logits(x)
    if logits.shape != (2, classes) or not (np.abs(logits) < MAX_VALUE).all():
        raise SavedModelError(f"it gives no logits for its {classes} classes")
