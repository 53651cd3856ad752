"""Save, load and export an adapted model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import prolip
from prolip import encoders, methods
from prolip.api import check_saved
from prolip.api.model import AdaptedModel, Support, make_task
from prolip.core import ModelError, SavedModelError, Settings, Text
from prolip.core.arguments import as_path
from prolip.core.arrays import Array
from prolip.core.errors import first_line
from prolip.encoders import Encoder
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.figures import Figures
from prolip.evaluate.out_of_distribution import FALSE_REJECT
from prolip.export.base_model import load_base
from prolip.export.card import model_card
from prolip.export.saved import CONFIG, SavedModel, read_model, write_model
from prolip.io.progress import Progress

if TYPE_CHECKING:
    from prolip.api.evaluate import Report


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
        "templates": model.templates,
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
    card: bool = False,
    replaced: str | None = None,
) -> None:
    """Write a folder that `load` reads; with `support` also the features that a later fit needs.

    `replaced` is the `prolip.export.saved.version` of the model that may be replaced; another one is not.
    """
    path = as_path(path, "path")
    name = path.expanduser().resolve().name
    text = model_card(describe(model), {CONFIG}, name) if card else None
    write_model(path, saved_model(model, support=support, card=text), replaced)


def saved_model(model: AdaptedModel, *, support: bool = True, card: str | None = None) -> SavedModel:
    """Return the content of a saved folder."""
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
    return SavedModel(describe(model), tensors, saved_support, card)


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
        check_saved.check_config(saved.config)
        check_saved.check_tensors(saved.tensors | (saved.support or {}))
        text = Text(saved.tensors["text"], tuple(map(str, saved.config["classes"])))
    name, fingerprint = saved.config["model"], saved.config["fingerprint"]
    if download and base is None:
        base = encoders.load(name, device, download=True, progress=progress)
    encoder = load_base(path, name, fingerprint, device, base=base)
    with _corrupt_model_errors(path):
        return _restore(saved, encoder, text)


@contextmanager
def _corrupt_model_errors(path: Path) -> Iterator[None]:
    """Re-raise any error of parsing as a `SavedModelError`, except those of the base model."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # a malicious file may fail anywhere
        why = first_line(error)
        raise SavedModelError(f"{path} is damaged, or is not a model: {why}") from error


def _restore(saved: SavedModel, encoder: Encoder, text: Text) -> AdaptedModel:
    """Build the model, and check that its parts fit each other."""
    config, classes = saved.config, tuple(saved.config["classes"])
    tensors = {name: array for name, array in saved.tensors.items() if name not in ("text", "support")}
    recipe, settings = check_saved.recipe_of(config), Settings(**config["settings"])
    hashes = tuple(row.tobytes() for row in saved.tensors["support"].astype(np.uint8).reshape(-1, 32))
    figures = Figures.from_json(config["held_out"])
    confidence = Confidence.restore(tensors, float(config["temperature"]), figures)
    if confidence.out_of_distribution is not None:
        check_saved.check_out_of_distribution(confidence.out_of_distribution, encoder, len(classes))
    fitted = methods.restore(
        config["kind"], tensors, config["config"], encoder.head, text, settings, config["fit"]
    )
    check_saved.check_fitted(fitted, tensors, encoder, len(classes))
    task = None
    if saved.support is not None:
        x, y = saved.support["features"], saved.support["labels"]
        task = make_task(encoder, x, y, text, saved.support.get("groups"))
        if (task.views, task.n) != (recipe.views, len(hashes)):
            raise SavedModelError(f"its support set has {task.views} views of {task.n} images")
        if "held_out" in saved.support:
            confidence = replace(confidence, held_out=check_saved.held_out_of(saved.support, task))
    out = confidence.out_of_distribution
    support = Support(hashes, task, negatives=None if out is None else out.negatives)
    return AdaptedModel(encoder, recipe, fitted, classes, text, confidence, support, config["fit"])


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
