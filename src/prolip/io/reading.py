"""Read files of JSON, text and arrays: any content that cannot be read is a `ReadError`.

Arrays hold numbers and text, never pickles.
"""

import errno
import json
import os
from pathlib import Path
from typing import IO, Any

import numpy as np

from prolip.core.arrays import Array
from prolip.core.errors import InputError, MissingFileError, SavedModelError, first_line

FILE_LIMIT, TEXT_LIMIT = 64 << 30, 256 << 20  # bytes


class ReadError(InputError):
    """A file cannot be read; `path` says which, `reason` why."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot read {path}: {reason}")
        self.path, self.reason = path, reason


def open_regular(path: str | os.PathLike[str], limit: int = FILE_LIMIT) -> IO[bytes]:
    """Open a regular file of at most `limit` bytes for reading."""
    place = Path(path)
    try:
        if place.exists() and not place.is_file():  # a folder; a pipe, which would hang
            raise OSError(errno.EINVAL, "it is not a regular file")
        if place.exists() and (size := place.stat().st_size) > limit:
            raise OSError(errno.EFBIG, f"it has {size / 1e6:,.0f} MB, {limit / 1e6:,.0f} are the limit")
        return place.open("rb")
    except FileNotFoundError as error:
        raise MissingFileError(f"{place} does not exist") from error
    except (OSError, ValueError) as error:  # a name with a null character is a ValueError
        raise ReadError(place, getattr(error, "strerror", None) or str(error)) from error


def read_bytes(path: str | os.PathLike[str], limit: int = FILE_LIMIT) -> bytes:
    """Read a regular file."""
    with open_regular(path, limit) as file:
        return file.read()


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a UTF-8 file, with or without a byte order mark."""
    try:
        return read_bytes(path, TEXT_LIMIT).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ReadError(Path(path), f"it is not UTF-8 (byte {error.start})") from error


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file."""
    text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReadError(Path(path), f"it is not JSON: {error}") from error


def parse_tensors(payload: bytes, path: Path) -> dict[str, Array]:
    """Parse the content of a safetensors file; `path` is for the error. NumPy has no bfloat16: an error."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(payload)
    except (SafetensorError, KeyError, ValueError, TypeError, AttributeError, MemoryError) as error:
        raise SavedModelError(f"{path} cannot be read: {first_line(error)}") from error


def read_arrays(path: Path) -> dict[str, Array]:
    """Read the arrays of an .npz file, by name."""
    with open_regular(path) as file:
        try:
            with np.load(file, allow_pickle=False) as arrays:
                return dict(arrays)
        except Exception as error:  # a damaged stream ends in whatever its decompressor raises
            raise ReadError(path, f"it is damaged: {first_line(error)}") from error
