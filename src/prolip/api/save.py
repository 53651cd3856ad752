"""Save, load and export an adapted model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import prolip
from prolip import encoders, methods
from prolip.api.model import AdaptedModel, Support, make_task
from prolip.api.recipe import Recipe
from prolip.core import HeldOutPredictions, ModelError, SavedModelError, Settings, Task, Text
from prolip.core.arrays import Array
from prolip.core.errors import as_path, errors_as, first_line, is_json_of
from prolip.data.imageset import normalize_label
from prolip.encoders import Encoder
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.metrics import Figures
from prolip.evaluate.out_of_distribution import FALSE_REJECT
from prolip.export.base_model import load_base
from prolip.export.saved import SavedModel, read_model, write_model
from prolip.io.progress import Progress

if TYPE_CHECKING:
    from prolip.api.evaluate import Report


MAX_VALUE = 1e12  # of a tensor or a logit: products of three are still float32


def describe(model: AdaptedModel) -> dict[str, Any]:
    """Return the JSON of a saved model."""
    encoder, out_of_distribution = model.encoder, model.confidence.out_of_distribution
    return {
        "prolip": prolip.__version__,
        "model": encoder.name,
        "revision": encoder.revision,
        "fingerprint": encoder.fingerprint,
        "licence": encoder.licence,
        "recipe": asdict(model.recipe),
        "method": model.recipe.method,
        "templates": list(model.recipe.prompts),
        "settings": asdict(model.fitted.settings),
        "lam": model.fitted.settings.options.get("lam"),
        "kind": model.fitted.kind,
        "config": model.fitted.config(),
        "temperature": model.confidence.temperature,
        "threshold": None if out_of_distribution is None else out_of_distribution.threshold(FALSE_REJECT),
        "classes": list(model.classes),
        "fit": model.report,
        "held_out": model.confidence.report,
    }


def save(
    model: AdaptedModel,
    path: str | Path,
    *,
    support: bool = True,
    replaced: str | None = None,
) -> None:
    """Write a folder that `load` reads; with `support` also the features that a later fit needs.

    `replaced` is the `manifest_checksum` of the model that may be replaced; another one is not.
    """
    path = as_path(path, "path")
    hashes = np.frombuffer(b"".join(model.support.hashes), np.uint8).reshape(-1, 32)
    tensors = {
        **model.fitted.tensors(),
        **model.confidence.tensors(),
        "text": model.text.rows,
        "support": hashes,
    }
    saved_support, task = None, model.support.task
    if support and task is not None:
        saved_support = {"features": _half(task.x), "labels": task.y}
        if task.independent < task.n:
            saved_support["groups"] = task.groups
        if (out := model.confidence.held_out) is not None:
            saved_support |= {"held_out": out.logits.astype(np.float32), "held_out_images": out.images}
    write_model(path, SavedModel(describe(model), tensors, saved_support), replaced)


def load(
    path: str | Path,
    device: str = "auto",
    *,
    base: str | Encoder | None = None,
    download: bool = False,
    progress: Progress | None = None,
) -> AdaptedModel:
    """Read a saved model; refuse to combine it with another base model than that of the fit.

    `base` is that of `prolip.export.base_model.load_base`; `download` downloads the one that the model names.
    """
    path = as_path(path, "path")
    saved = read_model(path)
    with _corrupt_model_errors(path):
        _check_config(saved.config)
        _check_tensors(saved.tensors | (saved.support or {}))
        text = Text(saved.tensors["text"], tuple(map(str, saved.config["classes"])))
        name, fingerprint = str(saved.config["model"]), str(saved.config["fingerprint"])
    if download and base is None:
        base = encoders.load(name, device, download=True, progress=progress)
    encoder = load_base(path, name, fingerprint, device, base=base)
    with _corrupt_model_errors(path):
        return _restore(saved, encoder, text)


def _corrupt_model_errors(path: Path) -> AbstractContextManager[None]:
    """Re-raise any error of parsing as a `SavedModelError`, except those of the base model."""
    return errors_as(
        lambda error: SavedModelError(f"{path} is damaged, or is not a model: {first_line(error)}"),
        keep=ModelError,
    )


def _restore(saved: SavedModel, encoder: Encoder, text: Text) -> AdaptedModel:
    """Build the model, and check that its parts fit each other."""
    config, classes = saved.config, tuple(saved.config["classes"])
    tensors = {name: array for name, array in saved.tensors.items() if name not in ("text", "support")}
    recipe, settings = Recipe(**config["recipe"]), Settings(**config["settings"])
    hashes = tuple(row.tobytes() for row in saved.tensors["support"].astype(np.uint8).reshape(-1, 32))
    figures = Figures.from_json(config["held_out"])
    confidence = Confidence.restore(tensors, float(config["temperature"]), figures)
    fitted = methods.restore(
        config["kind"], tensors, config["config"], encoder.head, text, settings, config["fit"]
    )
    task = None
    if saved.support is not None:
        x, y = saved.support["features"], saved.support["labels"]
        task = make_task(encoder, x, y, text, saved.support.get("groups"))
        if (task.views, task.n) != (recipe.views, len(hashes)):
            raise SavedModelError(f"its support set has {task.views} views of {task.n} images")
        if "held_out" in saved.support:
            confidence = replace(confidence, held_out=_held_out_of(saved.support, task))
    out = confidence.out_of_distribution
    support = Support(hashes, task, negatives=None if out is None else out.negatives)
    model = AdaptedModel(encoder, recipe, fitted, classes, text, confidence, support, config["fit"])
    _require_predictions(model)
    return model


def export(
    model: AdaptedModel,
    path: str | Path,
    to: Sequence[str],
    *,
    force: bool = False,
    evaluation: Report | None = None,
    runtime: str | Path | None = None,
    **options: Any,
) -> list[str]:
    """Export the model, as `prolip.export.formats.export` does; return the names of the files.

    `options` are those of `prolip.export.formats.Export`.
    """
    from prolip.export.formats import Export
    from prolip.export.formats import export as write
    from prolip.export.web import find_runtime

    config = {**describe(model), "evaluation": evaluation and evaluation.figures.to_json()}
    runtime = None if runtime is None else find_runtime(as_path(runtime, "runtime"))
    rejection = model.confidence.out_of_distribution
    exported = Export(model.encoder, model.fitted, config, rejection, runtime=runtime, **options)
    return write(as_path(path, "path"), exported, to, force=force)


def _half(x: Array) -> Array:
    """Convert to float16 if that is precise enough; it halves the file."""
    with np.errstate(over="ignore"):
        half = x.astype(np.float16)
    precise = np.abs(half - x).max(axis=-1) <= 1e-3 * np.abs(x).max(axis=-1)
    return half if precise.all() else x


# Validation of saved models, which may come from anyone.


def _check_config(config: dict[str, Any]) -> None:
    """Refuse class names and a temperature that no fit gives."""
    names = config["classes"]
    if not all(name == normalize_label(name) and is_json_of(name, str | float | bool) for name in names):
        raise SavedModelError("its classes are not names")
    if not names or len(set(map(str, names))) < len(names):
        raise SavedModelError("its classes are not all different")
    if not 1e-6 < config["temperature"] < 1e6:
        raise SavedModelError(f"its temperature is {config['temperature']}")


def _check_tensors(tensors: dict[str, Array]) -> None:
    """Refuse arrays of other things than finite, moderate numbers."""
    for name, array in tensors.items():
        if array.dtype.kind not in "fiu" or not float(np.abs(array).max(initial=0)) < MAX_VALUE:
            raise SavedModelError(f"{name} has other values than numbers below {MAX_VALUE:g}")


def _held_out_of(tensors: dict[str, Array], task: Task) -> HeldOutPredictions:
    """Return the predictions for held-out training images."""
    logits, images = tensors["held_out"], tensors["held_out_images"].astype(np.int64)
    y = task.y[images]
    if logits.shape != (len(y), task.classes) or y.ndim != 1 or len(np.unique(images)) < len(images):
        raise SavedModelError(f"its {list(logits.shape)} held-out predictions are not of training images")
    return HeldOutPredictions(logits, y, images)


def _require_predictions(model: AdaptedModel) -> None:
    """Refuse a model that cannot predict features, or gives logits that are not finite."""
    width = model.fitted.encoder_for(model.encoder).width
    x = np.random.default_rng(0).standard_normal((2, width), dtype=np.float32)
    with np.errstate(all="ignore"):
        logits = model.fitted.logits(x)
    if logits.shape != (2, len(model.classes)) or not (np.abs(logits) < MAX_VALUE).all():
        raise SavedModelError(f"it gives no logits for its {len(model.classes)} classes")
    if model.confidence.out_of_distribution is not None:
        model.rejects(x, logits.argmax(axis=1))
