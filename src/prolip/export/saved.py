"""A saved classifier: a folder with a JSON and safetensors.

    prolip.json            base model and its fingerprint, classes, templates, method, figures of the fit,
                           and the SHA-256 of everything else in the folder
    prolip.safetensors     the tuned weights, and the text rows of the classes
    support.safetensors    features and labels of the support set, to fit again later; may be left out
    README.md              a model card, where one was asked for

The folder is written beside its place and renamed into it, so it is there whole or not at all. Reading
checks every file before anything is built from them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prolip import encoders
from prolip.core.arrays import Array
from prolip.core.errors import ModelError, SavedModelError, UsageError
from prolip.core.files import read_tensors, sha256_file, write_bytes, write_folder, write_json, write_tensors
from prolip.encoders.base import Encoder

FORMAT = 1
CONFIG, TENSORS, SUPPORT = "prolip.json", "prolip.safetensors", "support.safetensors"
CARD = "README.md"


@dataclass(frozen=True, eq=False)
class SavedModel:
    """What a saved folder holds."""

    config: dict[str, Any]
    tensors: dict[str, Array]
    support: dict[str, Array] | None = None
    card: str | None = None


def check_target(path: Path) -> None:
    """Refuse to write over anything but an empty folder or an earlier saved model."""
    if path.is_dir():
        others = sorted({p.name for p in path.iterdir()} - {CONFIG, TENSORS, SUPPORT, CARD})
        if others:
            raise UsageError(f"{path} holds other files ({others[0]}, ...): name a new folder")
    elif path.exists():
        raise UsageError(f"{path} is a file: name a folder")


def write_model(path: Path, model: SavedModel) -> None:
    """Write the folder whole; an earlier model there is replaced."""
    check_target(path)

    def fill(folder: Path) -> None:
        write_tensors(folder / TENSORS, model.tensors)
        config = {"format": FORMAT, **model.config, "sha256": sha256_file(folder / TENSORS)}
        if model.support is not None:
            write_tensors(folder / SUPPORT, model.support)
            config["support_sha256"] = sha256_file(folder / SUPPORT)
        write_json(folder / CONFIG, {**config, "checksum": _checksum(config)})
        if model.card is not None:
            write_bytes(folder / CARD, model.card.encode())

    write_folder(path, fill)


def read_model(path: Path) -> SavedModel:
    """Read a folder, or say what is wrong with it."""
    if not path.is_dir():
        raise SavedModelError(f"no saved model at {path}: there is no such folder")
    for name in (CONFIG, TENSORS):
        if not (path / name).is_file():
            raise SavedModelError(f"{path} is not a complete saved model: {name} is missing")
    config: Any = None
    with contextlib.suppress(ValueError, OSError):
        config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
    if not isinstance(config, dict) or not isinstance(config.get("format"), int):
        raise SavedModelError(f"{path / CONFIG} is damaged: it is not the JSON of a saved model")
    if config["format"] > FORMAT:
        raise SavedModelError(
            f"{path} was saved by a newer version (format {config['format']}, this one reads {FORMAT}): "
            "upgrade prolip"
        )
    checksum = config.pop("checksum", None)
    if checksum != _checksum(config):
        raise SavedModelError(f"{path / CONFIG} was altered since it was saved: save the model again")
    tensors = read_checked(path / TENSORS, config["sha256"])
    support = None
    if "support_sha256" in config:
        support = read_checked(path / SUPPORT, config["support_sha256"])
    return SavedModel(config, tensors, support)


def load_base(path: str | Path, name: str, fingerprint: str | None, device: str) -> Encoder:
    """The base model of what is saved at `path`; refused where its weights are not those of the fit."""
    try:
        encoder = encoders.load(name, device)
    except ModelError as error:
        raise ModelError(f"{path} needs its base model, {name}: {error}") from error
    if encoder.fingerprint != fingerprint:
        if name == "offline":
            raise ModelError(
                f"{path} was fitted on an earlier offline encoder, which has changed since: fit it again"
            )
        raise ModelError(
            f"{path} was fitted on {name} with weights {fingerprint}, "
            f"but the weights found here are {encoder.fingerprint}"
        )
    return encoder


def read_checked(file: Path, expected: str) -> dict[str, Array]:
    """The arrays of a safetensors file whose SHA-256 is known; an error where its content is another."""
    if not file.is_file():
        raise SavedModelError(f"{file.parent} is not a complete saved model: {file.name} is missing")
    found = sha256_file(file)
    if found != expected:
        raise SavedModelError(
            f"{file} was altered since it was saved: expected SHA-256 {expected}, found {found}"
        )
    return read_tensors(file)


def _checksum(config: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
