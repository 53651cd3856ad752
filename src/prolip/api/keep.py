"""An adapted model to a folder and back, and to other programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import prolip
from prolip import methods
from prolip.api.adapt import support_task
from prolip.api.model import AdaptedModel, Recipe, Support
from prolip.core import SavedModelError, Settings, Text, UsageError
from prolip.core.arrays import Array
from prolip.data.descriptions import as_descriptions
from prolip.encoders import Encoder
from prolip.encoders.embeddings import BroughtEmbeddings
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.reject import FALSE_REJECT
from prolip.export.card import model_card
from prolip.export.saved import CONFIG, SavedModel, load_base, read_model, write_model

_NEEDED = (
    "model", "fingerprint", "recipe", "settings", "kind", "config", "temperature", "classes", "fit",
    "held_out",
)  # fmt: skip


def describe(model: AdaptedModel) -> dict[str, Any]:
    """What a saved model says about itself."""
    encoder, outsiders = model.encoder, model.confidence.outsiders
    return {
        "prolip": prolip.__version__,
        "model": encoder.name,
        "revision": encoder.revision,
        "fingerprint": encoder.fingerprint,
        "licence": encoder.licence,
        "recipe": asdict(model.recipe),
        "method": model.recipe.method,
        "templates": list(model.recipe.templates) if encoder.takes_pictures else None,
        "settings": asdict(model.fitted.settings),
        "lam": model.fitted.settings.options.get("lam"),
        "kind": model.fitted.kind,
        "config": model.fitted.config(),
        "temperature": model.confidence.temperature,
        "threshold": None if outsiders is None else outsiders.threshold(FALSE_REJECT),
        "classes": list(model.classes),
        "fit": model.report,
        "held_out": model.confidence.report,
    }


def save(model: AdaptedModel, path: Path, *, support: bool = True, card: bool = False) -> None:
    """Write a folder that `load` reads; with `support` also the features that a later fit needs."""
    hashes = np.frombuffer(b"".join(model.support.hashes), np.uint8).reshape(-1, 32)
    tensors = {
        **model.fitted.tensors(),
        **model.confidence.tensors(),
        "text": model.text.rows,
        "support": hashes,
    }
    kept, task = None, model.support.task
    if support and task is not None:
        kept = {"features": _half(task.x), "labels": task.y}
    config = describe(model)
    text = model_card(config, {CONFIG}, path.name) if card else None
    write_model(path, SavedModel(config, tensors, kept, text))


def load(path: Path, device: str = "auto") -> AdaptedModel:
    """Read a saved model; refuse one whose base model is not the one it was fitted on."""
    saved = read_model(path)
    config, tensors = saved.config, dict(saved.tensors)
    if missing := [key for key in _NEEDED if key not in config] or sorted({"text", "support"} - set(tensors)):
        raise SavedModelError(f"{path} is damaged: its JSON or tensors lack {missing[0]!r}")
    classes = tuple(config["classes"])
    text = Text(tensors.pop("text"), tuple(map(str, classes)))
    encoder: Encoder = BroughtEmbeddings(text)
    if config["model"] != encoder.name:
        encoder = load_base(path, config["model"], config["fingerprint"], device)
    try:
        recipe = _recipe(config["recipe"])
        settings = Settings(**config["settings"])
    except (TypeError, KeyError) as error:
        raise SavedModelError(f"{path} is damaged: {error}") from error
    hashes = tuple(row.tobytes() for row in tensors.pop("support"))
    confidence = Confidence.restore(tensors, float(config["temperature"]), config["held_out"])
    fitted = methods.restore(
        config["kind"], tensors, config["config"], encoder.head, text, settings, config["fit"]
    ).bind(encoder)
    task = None
    if saved.support is not None:
        x, y = saved.support["features"], saved.support["labels"]
        task = support_task(encoder, recipe, x, y, text)
    support = Support(hashes, task)
    return AdaptedModel(encoder, recipe, fitted, classes, text, confidence, support, config["fit"])


def export(
    model: AdaptedModel,
    path: Path,
    to: Sequence[str],
    *,
    force: bool = False,
    evaluation: dict[str, Any] | None = None,
) -> list[str]:
    """Write the model for other programs, as `prolip.export.write.export` does; returns the files' names."""
    from prolip.export.write import export as write

    if not model.encoder.takes_pictures:
        raise UsageError("embeddings have no model behind them that could be exported")
    config = {**describe(model), "evaluation": evaluation}
    return write(path, model.encoder, model.fitted, config, to, force=force)


def _recipe(saved: dict[str, Any]) -> Recipe:
    templates, descriptions = tuple(saved["templates"]), as_descriptions(saved["descriptions"])
    return Recipe(**{**saved, "templates": templates, "descriptions": descriptions})


def _half(x: Array) -> Array:
    """Float16 where it holds the range: half the file, and far finer than two pictures ever agree."""
    return x.astype(np.float16) if np.abs(x).max() < 60000 else x
