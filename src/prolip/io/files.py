"""The cache folder, file names, the state of files, and hashes."""

import hashlib
import os
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core.arrays import to_numpy
from prolip.core.errors import UsageError

_FORBIDDEN = {ord(mark): "_" for mark in '<>:"/\\|?*'} | dict.fromkeys([*range(32), 127], "_")
_DEVICES = {"con", "prn", "aux", "nul", "conin$", "conout$"} | {
    port + number for port in ("com", "lpt") for number in "123456789\u00b9\u00b2\u00b3"
}


def cache_dir() -> Path:
    """Return the folder for features and derived weights: $PROLIP_CACHE, or the user's cache folder."""
    path = os.environ.get("PROLIP_CACHE")
    if path == "":
        raise UsageError("PROLIP_CACHE is empty: set it to a folder, or unset it for the user's cache folder")
    try:
        if path is None:
            from platformdirs import user_cache_path

            path = str(user_cache_path("prolip", appauthor=False))
        return Path(path).expanduser()
    except RuntimeError as error:  # the user does not exist, or has no home
        raise UsageError(f"the cache folder cannot be found ({error}): set PROLIP_CACHE") from error


def readable(name: str) -> str:
    """Return a file name as valid text: bytes that are not UTF-8 become escapes."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def portable_name(name: str) -> str:
    """Return the nearest file name that is valid on every file system: Windows rejects many."""
    cleaned = unicodedata.normalize("NFC", name).translate(_FORBIDDEN).rstrip(". ") or "_"
    device = cleaned.partition(".")[0].rstrip(" ").lower() in _DEVICES
    return f"{cleaned}_" if device else cleaned


def lies_in(path: Path, folder: Path) -> bool:
    """Whether a path is a folder or below it, also through links, mounts and names in another case."""
    resolved = Path(os.path.realpath(path))  # which accepts circular links
    for place in (resolved, *resolved.parents):
        with suppress(OSError):
            if place.samefile(folder):
                return True
    return False


def file_state(file: str | os.PathLike[str] | int) -> tuple[int, ...]:
    """Return size, times and inode of a path or an open file: they change with the content."""
    status = os.stat(file)  # noqa: PTH116 - accepts a descriptor, too
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def sha256_tensors(named: Iterable[tuple[str, Any]]) -> str:
    """Return a SHA-256 over names, shapes, types and values of arrays."""
    digest = hashlib.sha256()
    for name, tensor in sorted(named, key=lambda item: item[0]):
        values = np.asarray(to_numpy(tensor), order="C")
        digest.update(f"{name}:{values.dtype}:{values.shape};".encode())
        digest.update(values.reshape(-1).view(np.uint8).data if values.size else b"")
    return digest.hexdigest()
