"""A saved classifier: a folder with a JSON and safetensors.

    prolip.json                   the manifest: base model and its fingerprint, classes, templates, method,
                                  figures of the fit, and the name and SHA-256 of each file below
    prolip-<hex>.safetensors      the tuned weights, and the text rows of the classes
    support-<hex>.safetensors     features and labels of the support set, to fit again later; may be left out
    README.md                     a model card, optional

Data files are named by their content, so that a new model does not overwrite the files of the old one: it is
written beside them, and replaces the old model when the manifest is renamed. Then the old files are removed.
At every moment one of the two can be loaded, also after a power cut. Files that the manifest does not list
belong to the user, and are never changed. Every file is checked before it is used.
"""

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prolip.core.arrays import Array
from prolip.core.errors import InputError, ProlipError, SavedModelError, UsageError
from prolip.io.locks import MARK, folder_lock
from prolip.io.reading import ReadError, parse_tensors, read_bytes, read_json
from prolip.io.writing import (
    WriteError,
    as_safetensors,
    check_place,
    make_folders,
    write_bytes,
    write_json,
)

FORMAT = 3
CONFIG, CARD = "prolip.json", "README.md"
_DATA = re.compile(r"(prolip|support)-([0-9a-f]{16})\.safetensors")


@dataclass(frozen=True, eq=False)
class SavedModel:
    """The content of a saved folder."""

    config: dict[str, Any]
    tensors: dict[str, Array]
    support: dict[str, Array] | None = None
    card: str | None = None


class _MissingFile(SavedModelError):  # noqa: N818 - reads as what it is where it is caught
    """A file that the manifest lists is missing."""


def check_target(path: Path, card: bool = False) -> None:
    """Refuse a target that is not new, empty or an earlier model, before any work."""
    target = _folder(path)
    if target.is_dir():
        _check_ours(path, target, card)


def _folder(path: Path) -> Path:
    target = check_place(path)
    if target.exists() and not target.is_dir():
        raise UsageError(f"{path} is a file: name a folder")
    return target


def _check_ours(path: Path, target: Path, card: bool) -> None:
    """Check that a folder has a manifest, or only what an interrupted process of ours left."""
    try:
        names = {file.name for file in target.iterdir()}
    except OSError as error:
        raise WriteError(path, error) from error
    if CONFIG in names:
        files = _listed(target)
        if files is None:
            raise UsageError(
                f"{path} holds a {CONFIG} that is damaged or of another version: name a new folder"
            )
        if card and CARD in names and not _is_unchanged(target, CARD, files):
            raise UsageError(f"{CARD} in {path} was edited: move it elsewhere, or save without a card")
    elif others := sorted(name for name in names if not _is_left_over(target / name)):
        raise UsageError(f"{path} holds other files ({others[0]}, ...): name a new folder")


def has_card(path: Path) -> bool:
    """Whether a saved model has a model card that was not edited."""
    files = _listed(path)
    return files is not None and _is_unchanged(path, CARD, files)


def version(path: Path) -> str | None:
    """Return a checksum that identifies a saved model; None where there is no model."""
    try:
        return _checksum(read_manifest(path))
    except ProlipError:
        return None


def write_model(path: Path, model: SavedModel, over: str | None = None) -> None:
    """Write the folder; an existing model is replaced atomically, and stays after a failure.

    `over` is the `version` that this model was made from: one that was saved since then is not replaced.
    """
    target = _folder(path)
    try:
        make_folders(target.parent)
        with folder_lock(target):
            _check_ours(path, target, model.card is not None)
            if over is not None and over != version(target):
                raise UsageError(f"{path} was changed by another process: run the command again")
            try:
                _write(target, model)
            except BaseException:
                _tidy(target, _listed(target) or {})
                raise
    except OSError as error:
        raise WriteError(path, error) from error


def _write(target: Path, model: SavedModel) -> None:
    """Write data first, then the manifest, then remove what only the old one listed."""
    files = {}
    for kind, tensors in (("prolip", model.tensors), ("support", model.support)):
        if tensors is not None:
            payload = as_safetensors(tensors)
            digest = hashlib.sha256(payload).hexdigest()
            files[f"{kind}-{digest[:16]}.safetensors"] = digest
            write_bytes(target / f"{kind}-{digest[:16]}.safetensors", payload)
    if _is_unchanged(target, CARD, _listed(target) or {}):
        (target / CARD).unlink()  # a card never stands beside another model
    card = None if model.card is None else model.card.encode()
    if card is not None:
        files[CARD] = hashlib.sha256(card).hexdigest()
    config = {"format": FORMAT, **model.config, "files": files}
    write_json(target / CONFIG, {**config, "checksum": _checksum(config)})
    if card is not None:
        write_bytes(target / CARD, card)
    _tidy(target, files)


def _tidy(target: Path, files: dict[str, str]) -> None:
    for file in target.iterdir():
        if file.name not in files and _DATA.fullmatch(file.name) and _is_left_over(file):
            with suppress(OSError):
                file.unlink()


def _is_left_over(file: Path) -> bool:
    """Whether an interrupted process of ours left this file: its name is a hash of its content."""
    if file.name.startswith(MARK):
        return True
    match = _DATA.fullmatch(file.name)
    try:
        return match is not None and hashlib.sha256(read_bytes(file)).hexdigest().startswith(match[2])
    except InputError:
        return False


def _is_unchanged(folder: Path, name: str, files: dict[str, str]) -> bool:
    try:
        return hashlib.sha256(read_bytes(folder / name)).hexdigest() == files.get(name)
    except InputError:
        return False


def _listed(folder: Path) -> dict[str, str] | None:
    """The files that a folder's manifest lists; None without a valid manifest."""
    try:
        files: dict[str, str] = read_manifest(folder)["files"]
    except ProlipError:
        return None
    return files


def read_model(path: Path) -> SavedModel:
    """Read a saved folder, checking every file."""
    manifest = read_manifest(path)
    while True:
        try:
            tensors, support = (_read_data(path, kind, manifest["files"]) for kind in ("prolip", "support"))
        except _MissingFile:
            # If another process has replaced the model, the manifest has changed, too.
            if (again := read_manifest(path)) == manifest:
                raise
            manifest = again
            continue
        if tensors is None:
            raise SavedModelError(f"{path / CONFIG} is damaged: it lists no weights")
        return SavedModel(manifest, tensors, support)


def read_manifest(path: Path) -> dict[str, Any]:
    """Read and check prolip.json; return it without its checksum."""
    if not path.is_dir():
        why = "it is a file" if path.exists() else "there is no such folder"
        raise SavedModelError(
            f"no saved model at {path}: {why}; `prolip fit DIR -o MODEL` makes one", "missing"
        )
    if not (path / CONFIG).exists():
        raise SavedModelError(f"{path} is not a complete saved model: {CONFIG} is missing", "missing")
    try:
        config = read_json(path / CONFIG)
    except ReadError as error:
        raise SavedModelError(f"{path / CONFIG} is damaged: {error.reason}") from error
    if not isinstance(config, dict) or not isinstance(config.get("format"), int):
        raise SavedModelError(f"{path / CONFIG} is damaged: it is not the JSON of a saved model")
    if config["format"] > FORMAT:
        raise SavedModelError(f"{path} was saved by a newer version: upgrade prolip", "version")
    if config["format"] < FORMAT:
        raise SavedModelError(f"{path} was saved by an earlier version: fit it again", "version")
    checksum = config.pop("checksum", None)
    if checksum != _checksum(config):
        raise SavedModelError(
            f"{path / CONFIG} was altered since it was saved: save the model again", "altered"
        )
    files = config.get("files")
    if not isinstance(files, dict) or not all(
        name == CARD or ((known := _DATA.fullmatch(name)) and str(digest).startswith(known[2]))
        for name, digest in files.items()
    ):
        raise SavedModelError(f"{path / CONFIG} is damaged: it lists files that no saved model has")
    return config


def _read_data(path: Path, kind: str, files: dict[str, str]) -> dict[str, Array] | None:
    name = next((name for name in files if name.startswith(f"{kind}-")), None)
    return None if name is None else read_checked(path / name, files[name])


def read_checked(file: Path, expected: str) -> dict[str, Array]:
    """Read a safetensors file, and check its SHA-256."""
    if not file.exists():
        raise _MissingFile(f"{file.parent} is not a complete saved model: {file.name} is missing", "missing")
    try:
        payload = read_bytes(file)
    except InputError as error:
        raise (_MissingFile if not file.exists() else SavedModelError)(str(error)) from error
    actual = hashlib.sha256(payload).hexdigest()
    if actual != expected:
        raise SavedModelError(
            f"{file} was altered since it was saved: expected SHA-256 {expected}, found {actual}", "altered"
        )
    return parse_tensors(payload, file)


def _checksum(config: dict[str, Any]) -> str:
    """Return the checksum of a manifest; non-finite numbers and deep nesting are errors."""
    try:
        return hashlib.sha256(json.dumps(config, sort_keys=True, allow_nan=False).encode()).hexdigest()
    except (RecursionError, ValueError) as error:
        raise SavedModelError(f"{CONFIG} is damaged: {error}") from error
