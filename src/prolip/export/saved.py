"""A saved classifier: a folder with a JSON and safetensors.

    prolip.json                   the manifest: base model and its fingerprint, classes, templates, method,
                                  figures of the fit, and the name and SHA-256 of each file below
    prolip-<hex>.safetensors      the tuned weights, and the text rows of the classes
    support-<hex>.safetensors     features and labels of the support set, to fit again later; may be left out

Data files are named by their content: those of a new model are written beside those of the old one, and the
new model takes its place when the manifest is renamed, so that at every moment one of the two can be loaded.
Other files in the folder are never changed.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prolip.core.arrays import Array
from prolip.core.errors import InputError, SavedModelError, UsageError
from prolip.io.reading import ReadError, parse_tensors, read_bytes, read_json
from prolip.io.writing import (
    MARK,
    WriteError,
    as_safetensors,
    check_place,
    follow,
    write_bytes,
    write_json,
    write_lock,
)

FORMAT = 4
CONFIG, CARD = "prolip.json", "README.md"
_DATA = re.compile(r"(prolip|support)-([0-9a-f]{16})\.safetensors")


@dataclass(frozen=True, eq=False)
class SavedModel:
    """The content of a saved folder."""

    config: dict[str, Any]
    tensors: dict[str, Array]
    support: dict[str, Array] | None = None


def check_target(path: Path) -> Path:
    """Return the folder to save in: new, empty or an earlier model."""
    target = check_place(path)
    if not target.exists():
        return target
    if not target.is_dir():
        raise UsageError(f"{path} is a file: name a folder")
    try:
        names = sorted(file.name for file in target.iterdir())
    except OSError as error:
        raise WriteError(path, error) from error
    others = [name for name in names if not (_DATA.fullmatch(name) or name.startswith(MARK))]
    if others and CONFIG not in names:
        raise UsageError(f"{path} holds other files ({others[0]}, ...): name a new folder")
    return target


def manifest_checksum(path: Path) -> str | None:
    """Return a checksum that identifies a saved model; None where there is no model."""
    try:
        return _sha256(read_bytes(path / CONFIG))
    except InputError:
        return None


def write_model(path: Path, model: SavedModel, over: str | None = None) -> None:
    """Write the folder; an existing model is replaced when the new one is complete.

    `over` is the `manifest_checksum` of the model that this one was made from: no other is replaced.
    """
    contents = {}
    for kind, tensors in (("prolip", model.tensors), ("support", model.support)):
        if tensors is not None:
            payload = as_safetensors(tensors)
            contents[f"{kind}-{_sha256(payload)[:16]}.safetensors"] = payload
    files = {name: _sha256(payload) for name, payload in contents.items()}
    try:
        with write_lock(follow(path)):
            target = check_target(path)
            if over is not None and manifest_checksum(target) not in (over, None):
                raise UsageError(f"{path} was changed by another process: run the command again")
            target.mkdir(parents=True, exist_ok=True)
            new = [name for name in contents if not (target / name).exists()]
            try:
                for name, payload in contents.items():
                    write_bytes(target / name, payload)
                write_json(target / CONFIG, {"format": FORMAT, **model.config, "files": files})
            except BaseException:
                _remove(target, set(new) - _listed(target))
                raise
            _remove(target, _data_files(target) - files.keys())
    except OSError as error:
        raise WriteError(path, error) from error


def _listed(folder: Path) -> set[str]:
    """Return the files of a saved model."""
    try:
        return set(read_manifest(folder)["files"])
    except SavedModelError:
        return set()


def _data_files(folder: Path) -> set[str]:
    """Return the data files of models, also of those whose process was killed: named by their content."""
    return {
        file.name
        for file in folder.iterdir()
        if (known := _DATA.fullmatch(file.name)) and _sha256(read_bytes(file)).startswith(known[2])
    }


def _remove(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)


def read_model(path: Path) -> SavedModel:
    """Read a saved folder, checking every file."""
    manifest = read_manifest(path)
    try:
        return _read(path, manifest)
    except SavedModelError:
        if (again := read_manifest(path)) == manifest:
            raise
        return _read(path, again)  # another process has replaced the model


def _read(path: Path, manifest: dict[str, Any]) -> SavedModel:
    arrays: dict[str, dict[str, Array]] = {}
    for name, digest in manifest["files"].items():
        if known := _DATA.fullmatch(name):
            arrays[known[1]] = read_checked(path / name, digest)
    if "prolip" not in arrays:
        raise SavedModelError(f"{path / CONFIG} is damaged: it lists no weights")
    return SavedModel(manifest, arrays["prolip"], arrays.get("support"))


def read_manifest(path: Path) -> dict[str, Any]:
    """Read and check prolip.json."""
    if not (path / CONFIG).exists():
        raise SavedModelError(
            f"no saved model at {path}: it has no {CONFIG}; `prolip fit DIR -o MODEL` makes one"
        )
    try:
        config = read_json(path / CONFIG)
    except ReadError as error:
        raise SavedModelError(f"{path / CONFIG} is damaged: {error.reason}") from error
    if not isinstance(config, dict) or not isinstance(config.get("format"), int):
        raise SavedModelError(f"{path / CONFIG} is damaged: it is not the JSON of a saved model")
    if config["format"] != FORMAT:
        raise SavedModelError(
            f"{path} was saved by another version of prolip (format {config['format']}, not {FORMAT}): "
            "use that version, or fit it again"
        )
    if not isinstance(config.get("files"), dict):
        raise SavedModelError(f"{path / CONFIG} is damaged: it lists no files")
    return config


def read_checked(file: Path, expected: str) -> dict[str, Array]:
    """Read a safetensors file, and check its SHA-256."""
    try:
        payload = read_bytes(file)
    except InputError as error:
        missing = f"{file.parent} is not a complete saved model: {file.name} cannot be read ({error})"
        raise SavedModelError(missing) from error
    if (actual := _sha256(payload)) != expected:
        raise SavedModelError(
            f"{file} was altered since it was saved: expected SHA-256 {expected}, found {actual}"
        )
    return parse_tensors(payload, file)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
