"""The cache folder, file names, the state of files, and hashes."""

import hashlib
import os
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core.arrays import to_numpy
from prolip.core.errors import UsageError

_FORBIDDEN = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')


def cache_dir() -> Path:
    """Return the folder for features and derived weights: $PROLIP_CACHE, or the user's cache folder."""
    path = os.environ.get("PROLIP_CACHE")
    if path == "":
        raise UsageError("PROLIP_CACHE is empty: set it to a folder, or unset it for the user's cache folder")
    if path is None:
        from platformdirs import user_cache_path

        return user_cache_path("prolip", appauthor=False)
    return Path(path).expanduser()


def readable(name: str) -> str:
    """Return a file name as valid text: bytes that are not UTF-8 become escapes."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def portable_name(name: str) -> str:
    """Return a file name without the characters that Windows rejects."""
    return _FORBIDDEN.sub("_", unicodedata.normalize("NFC", name)).rstrip(". ") or "_"


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
