"""Read files of JSON, text and arrays: any content that cannot be read is a `ReadError`.

Only regular files are opened: a pipe would hang, a device never end. Arrays hold numbers and text, never
pickles, and an .npz does not unpack to many times its size, as it may come from a stranger.
"""

import json
import os
import stat
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from prolip.core.arrays import Array
from prolip.core.errors import InputError, MissingFileError, SavedModelError, first_line

MEGABYTE = 1 << 20
JSON_LIMIT = 64 * MEGABYTE
TEXT_LIMIT = 256 * MEGABYTE
FILE_LIMIT = 64 << 30
UNPACKED, RATIO = 64 * MEGABYTE, 20  # a larger .npz may not unpack to more than RATIO times its size


class ReadError(InputError):
    """A file cannot be read; `path` says which, `reason` why."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot read {path}: {reason}")
        self.path, self.reason = path, reason


def open_regular(path: str | os.PathLike[str], limit: int = FILE_LIMIT) -> IO[bytes]:
    """Open a regular file of at most `limit` bytes for reading."""
    place = Path(path)
    try:
        handle = os.open(place, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:  # a name with a null character is a ValueError
        if isinstance(error, FileNotFoundError):
            raise MissingFileError(f"{place} does not exist") from error
        raise ReadError(place, getattr(error, "strerror", None) or str(error)) from error
    status = os.fstat(handle)
    if stat.S_ISREG(status.st_mode) and status.st_size <= limit:
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISREG(status.st_mode):
        raise ReadError(place, f"it has {status.st_size / 1e6:,.0f} MB, {limit / 1e6:,.0f} are the limit")
    raise ReadError(place, f"it is {'a folder' if stat.S_ISDIR(status.st_mode) else 'not a regular file'}")


def read_bytes(path: str | os.PathLike[str], limit: int = FILE_LIMIT) -> bytes:
    """Read a regular file."""
    with open_regular(path, limit) as file:
        try:
            return file.read()
        except OSError as error:
            raise ReadError(Path(path), error.strerror or str(error)) from error


def read_text(path: str | os.PathLike[str], limit: int = TEXT_LIMIT) -> str:
    """Read a UTF-8 file, with or without a byte order mark."""
    try:
        return read_bytes(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ReadError(Path(path), f"it is not UTF-8 (byte {error.start})") from error


def read_json(path: str | os.PathLike[str], limit: int = JSON_LIMIT) -> Any:
    """Read a JSON file."""
    text = read_text(path, limit)
    try:
        return parse_json(text)
    except ValueError as error:
        raise ReadError(Path(path), f"it is not JSON: {error}") from error


def parse_json(text: str) -> Any:
    """Parse JSON; deep nesting is a ValueError, too."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


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
            with zipfile.ZipFile(file) as archive:
                unpacked = sum(entry.file_size for entry in archive.infolist())
            if unpacked > max(UNPACKED, RATIO * os.fstat(file.fileno()).st_size):
                raise ReadError(path, f"it unpacks to {unpacked / 1e6:,.0f} MB: save it uncompressed")
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                return dict(arrays)
        except ReadError:
            raise
        except Exception as error:  # a damaged stream ends in whatever its decompressor raises
            raise ReadError(path, f"it is damaged: {first_line(error)}") from error
