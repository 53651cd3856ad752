"""Validation of saved models, which may come from anyone and have matching checksums."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from prolip.api.model import Recipe
from prolip.core import Fitted, HeldOutPredictions, SavedModelError, Settings, Task
from prolip.core.arrays import Array
from prolip.core.names import normalize_label
from prolip.data import as_templates
from prolip.data.descriptions import as_descriptions
from prolip.encoders import Encoder
from prolip.evaluate.out_of_distribution import OutOfDistribution

MAX_VALUE = 1e12  # of a tensor or a logit: products of three are still float32
MAX_COUNT = 10**5  # an integer in the configuration of a fitted model, such as words or iterations
MAX_NUMBER = 1e9  # any other number there, such as a scale or the C of a regression


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _names(value: Any) -> bool:
    """Whether these are class names: normalised text, numbers or booleans, all different."""
    valid = isinstance(value, list) and all(
        name == normalize_label(name) if _text(name) else _number(name) or isinstance(name, bool)
        for name in value
    )
    return valid and bool(value) and len(set(map(str, value))) == len(value)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


_FIELDS: dict[str, Callable[[Any], bool]] = {
    "model": _text,
    "fingerprint": _text,
    "recipe": _object,
    "settings": _object,
    "kind": _text,
    "config": _object,
    "temperature": lambda value: _number(value) and 1e-6 < value < 1e6,
    "classes": _names,
    "fit": lambda value: _object(value) and _count(value.get("images")) and _number(value.get("shots")),
    "held_out": _object,
}
_RECIPE: dict[str, Callable[[Any], bool]] = {
    "method": _text,
    "lam": lambda value: value is None or _text(value) or _number(value),
    "options": _object,
    "views": lambda value: _count(value) and value >= 1,
    "seed": _count,
    "templates": lambda value: isinstance(value, list) and all(map(_text, value)),
    "descriptions": _object,
    "calibrate": lambda value: isinstance(value, bool),
    "spoken": lambda value: _object(value) and all(map(_text, value.values())),
    "shots": lambda value: value is None or (_count(value) and value >= 1),
}
_SETTINGS: dict[str, Callable[[Any], bool]] = {"method": _text, "options": _object}


def check_config(config: dict[str, Any]) -> None:
    """Refuse JSON with missing fields, or fields of another type."""
    _check("its JSON", config, _FIELDS)
    numbers = _numbers(config["config"])
    if extreme := next(
        (x for x in numbers if not abs(x) <= (MAX_NUMBER if isinstance(x, float) else MAX_COUNT)), None
    ):
        raise SavedModelError(f"its configuration has the number {extreme}")


def _numbers(value: Any) -> Iterator[float]:
    """Yield every number in a JSON value."""
    if isinstance(value, (int, float)):
        yield value
    elif isinstance(value, (list, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _numbers(each)


def recipe_of(config: dict[str, Any]) -> Recipe:
    """Return the recipe, checked as far as possible without importing the method."""
    saved = {"shots": None, **config["recipe"]}  # models of earlier versions have no `shots`
    _check("its recipe", saved, _RECIPE, exact=True)
    if saved["method"] in ("prolip", "rla") and saved["lam"] == "auto":  # the former name of `anchored`
        saved |= {"method": "anchored", "lam": None}
    templates, descriptions = as_templates(saved["templates"]), as_descriptions(saved["descriptions"] or None)
    prompt_names = {"prompt_names": saved["spoken"]}
    fields = {name: value for name, value in saved.items() if name != "spoken"}
    return Recipe(**{**fields, **prompt_names, "templates": templates, "descriptions": descriptions})


def settings_of(config: dict[str, Any]) -> Settings:
    """Return the settings of the fit."""
    _check("its settings", config["settings"], _SETTINGS, exact=True)
    settings = Settings(**config["settings"])
    if settings.options.get("trust") is None:
        return settings
    old = settings.options  # of `anchored`, under its former name
    found = {name: old.get(name) for name in ("lam", "scale", "seed")}
    return Settings("anchored", {**found, "text_weight": old["trust"]})


def _check(
    what: str, found: dict[str, Any], fields: dict[str, Callable[[Any], bool]], exact: bool = False
) -> None:
    for name, valid in fields.items():
        if name not in found:
            raise SavedModelError(f"{what} lacks {name!r}")
        if not valid(found[name]):
            raise SavedModelError(f"{what} has {name} = {str(found[name])[:100]!r}")
    if exact and (more := sorted(found.keys() - fields.keys())):
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
    shapes = [
        out_of_distribution.means.shape,
        out_of_distribution.scores.shape,
        out_of_distribution.unknown_scores.shape,
    ]
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
