"""A classifier to a folder and back."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import prolip
from prolip import methods
from prolip.core import SavedModelError, Settings, Task, Text
from prolip.core.arrays import Array
from prolip.data import as_templates
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.reject import FALSE_REJECT
from prolip.export.card import model_card
from prolip.export.saved import CONFIG, SavedModel, load_base, read_model, write_model

if TYPE_CHECKING:
    from prolip.api.classifier import FewShotClassifier

_NEEDED = (
    "model", "fingerprint", "method", "options", "kind", "config", "settings", "report", "scale",
    "temperature", "seed", "views", "classes", "templates", "fit", "held_out",
)  # fmt: skip


def describe(clf: FewShotClassifier) -> dict[str, Any]:
    """What a saved model says about itself."""
    encoder = None if clf.model == "arrays" else clf.encoder
    outsiders = clf.confidence_.outsiders
    return {
        "prolip": prolip.__version__,
        "model": clf.model,
        "revision": encoder.revision if encoder else None,
        "fingerprint": encoder.fingerprint if encoder else None,
        "licence": encoder.licence if encoder else None,
        "method": clf.method,
        "options": clf.options,
        "kind": clf.fitted_.kind,
        "lam": clf.info_.get("lam"),
        "scale": clf.info_.get("scale", clf.zero_shot().scale),
        "temperature": clf.confidence_.temperature,
        "threshold": None if outsiders is None else outsiders.threshold(FALSE_REJECT),
        "seed": clf.seed,
        "views": clf.views,
        "classes": clf.classes_,
        "templates": None if encoder is None else as_templates(clf.templates),
        "fit": clf.info_,
        "config": clf.fitted_.config(),
        "settings": asdict(clf.fitted_.settings),
        "report": clf.fitted_.report,
        "held_out": clf.confidence_.report,
    }


def write(clf: FewShotClassifier, path: Path, support: bool, card: bool) -> None:
    """Save; with `support` also the features that a later fit needs."""
    hashes = np.frombuffer(b"".join(clf.support_), np.uint8).reshape(-1, 32)
    tensors = {
        **clf.fitted_.tensors(),
        **clf.confidence_.tensors(),
        "text": clf.text_.rows,
        "support": hashes,
    }
    kept = None
    if support and clf.task_ is not None:
        kept = {"features": _half(clf.task_.x), "labels": clf.task_.y}
    config = describe(clf)
    text = model_card(config, {CONFIG}, path.name) if card else None
    write_model(path, SavedModel(config, tensors, kept, text))


def read(kind: type[FewShotClassifier], path: Path, device: str, store: Any) -> FewShotClassifier:
    """Load; refuse a model whose base model is not the one it was fitted on."""
    saved = read_model(path)
    config, tensors = saved.config, dict(saved.tensors)
    if missing := [key for key in _NEEDED if key not in config] or sorted({"text", "support"} - set(tensors)):
        raise SavedModelError(f"{path} is damaged: its JSON or tensors lack {missing[0]!r}")
    black_box = config["model"] == "arrays"
    clf = kind(
        "arrays" if black_box else load_base(path, config["model"], config["fingerprint"], device),
        config["method"],
        config["fit"].get("lam_rule"),
        config["views"],
        config["seed"],
        templates=config["templates"],
        device=device,
        store=store,
        options=config["options"],
    )
    clf.classes_, clf.skipped_, clf.info_ = list(config["classes"]), [], config["fit"]
    clf.text_ = Text(tensors.pop("text"), tuple(map(str, clf.classes_)))
    clf.support_ = [row.tobytes() for row in tensors.pop("support")]
    clf.confidence_ = Confidence.restore(tensors, float(config["temperature"]), config["held_out"])
    head = clf.base_head()
    settings = Settings(**config["settings"])
    fitted = methods.restore(
        config["kind"], tensors, config["config"], head, clf.text_, settings, config["report"]
    )
    clf.fitted_ = fitted if black_box else fitted.bind(clf.encoder)
    clf.task_ = None
    if saved.support is not None:
        x, y = saved.support["features"], saved.support["labels"]
        clf.task_ = Task(x, y, clf.text_, None if black_box else head, clf.base_scale())
    return clf


def _half(x: Array) -> Array:
    """Float16 where it holds the range: half the file, and far finer than two pictures ever agree."""
    return x.astype(np.float16) if np.abs(x).max() < 60000 else x
