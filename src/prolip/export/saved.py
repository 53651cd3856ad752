"""A saved classifier: a folder with a JSON and one safetensors file.

    prolip.json           base model and its fingerprint, classes, templates, method, figures of the fit,
                          and the SHA-256 of everything else in the folder
    prolip.safetensors    the tuned weights, and the text rows of the classes

The folder is written beside its place and renamed into it, so it is there whole or not at all. Reading
checks both files before anything is built from them.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from prolip.core.errors import ProlipError, SavedModelError, UsageError
from prolip.core.files import sha256_file, write_json, write_tensors

FORMAT = 1
CONFIG, TENSORS = "prolip.json", "prolip.safetensors"


@dataclass(frozen=True, eq=False)
class SavedModel:
    """What a saved folder holds."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]


def is_saved_model(path: Path) -> bool:
    """Whether a folder looks like one of ours."""
    return (path / CONFIG).is_file()


def check_target(path: Path) -> None:
    """Refuse to write over anything but an empty folder or an earlier saved model."""
    if path.is_dir():
        strangers = sorted({p.name for p in path.iterdir()} - {CONFIG, TENSORS})
        if strangers:
            raise UsageError(f"{path} holds other files ({strangers[0]}, ...): name a new folder")
    elif path.exists():
        raise UsageError(f"{path} is a file: name a folder")


def write_model(path: Path, model: SavedModel) -> None:
    """Write the folder whole; an earlier model there is replaced."""
    check_target(path)
    parent = path.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=parent, prefix=f".{path.name}."))
    except OSError as error:
        raise ProlipError(f"cannot write to {parent}: {error.strerror}") from error
    try:
        write_tensors(temporary / TENSORS, model.tensors)
        config = {"format": FORMAT, **model.config, "sha256": sha256_file(temporary / TENSORS)}
        write_json(temporary / CONFIG, {**config, "checksum": _checksum(config)})
        temporary.chmod(0o755)
        if path.exists():
            old = temporary.with_name(f"{temporary.name}.old")
            path.replace(old)
            temporary.replace(path)
            shutil.rmtree(old)
        else:
            temporary.replace(path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ProlipError(
                f"no space left on the disk while writing {path}; nothing was written"
            ) from error
        raise ProlipError(f"cannot write {path}: {error.strerror}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_model(path: Path) -> SavedModel:
    """Read a folder, or say what is wrong with it."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

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
    found = sha256_file(path / TENSORS)
    if found != config["sha256"]:
        raise SavedModelError(
            f"{path / TENSORS} was altered since it was saved: "
            f"expected SHA-256 {config['sha256']}, found {found}"
        )
    try:
        return SavedModel(config, load_file(path / TENSORS))
    except SafetensorError as error:
        raise SavedModelError(f"{path / TENSORS} cannot be read: {error}") from error


def _checksum(config: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
