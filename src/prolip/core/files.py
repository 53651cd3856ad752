"""Files at the edges: where caches live, names as text, hashes."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core.arrays import to_numpy
from prolip.core.errors import UsageError


def cache_dir() -> Path:
    """Where features and derived weights are kept: $PROLIP_CACHE, or the user's cache folder."""
    if named := os.environ.get("PROLIP_CACHE"):
        try:
            return Path(named).expanduser()
        except RuntimeError as error:  # no such user
            raise UsageError(f"PROLIP_CACHE cannot be {named!r}: {error}") from error
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prolip"


def readable(name: str) -> str:
    """A file name as text that can be written anywhere: bytes that are no UTF-8 become escapes."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def file_state(found: os.stat_result) -> tuple[int, ...]:
    """Size, times and inode: as long as they stay, so does the content."""
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def sha256_file(path: Path) -> str:
    """The SHA-256 of a file's content, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def sha256_tensors(named: Iterable[tuple[str, Any]]) -> str:
    """A SHA-256 over names, shapes, types and values of arrays: equal weights, equal digest."""
    digest = hashlib.sha256()
    for name, tensor in sorted(named, key=lambda item: item[0]):
        values = np.asarray(to_numpy(tensor), order="C")
        digest.update(f"{name}:{values.dtype}:{values.shape};".encode())
        digest.update(values.reshape(-1).view(np.uint8).data if values.size else b"")
    return digest.hexdigest()
