"""Read files of JSON, text and arrays: any content that cannot be read is a `ReadError`.

Arrays hold numbers and text, never pickles.
"""

import json
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core.arrays import Array
from prolip.core.errors import InputError, MissingFileError, errors_as, first_line

Source = str | os.PathLike[str]


class ReadError(InputError):
    """A file cannot be read; `reason` says why."""

    def __init__(self, path: Source, reason: str) -> None:
        super().__init__(f"cannot read {path}: {reason}")
        self.reason = reason


def reading(path: Source) -> AbstractContextManager[None]:
    """Turn any error inside into a `ReadError`: on damaged files, libraries raise nearly anything."""

    def read_error(error: Exception) -> InputError:
        if isinstance(error, FileNotFoundError):
            return MissingFileError(f"{path} does not exist")
        return ReadError(path, getattr(error, "strerror", None) or first_line(error))

    return errors_as(read_error)


def read_bytes(path: Source) -> bytes:
    """Return the content of a file."""
    with reading(path):
        return Path(path).read_bytes()


def read_text(path: Source) -> str:
    """Read a UTF-8 file, with or without a byte order mark."""
    with reading(path):
        return Path(path).read_text("utf-8-sig")


def read_json(path: Source) -> Any:
    """Read a JSON file."""
    text = read_text(path)
    with reading(path):
        return json.loads(text)


def parse_tensors(payload: bytes, path: Path) -> dict[str, Array]:
    """Parse the content of a safetensors file; `path` is for the error. NumPy has no bfloat16: an error."""
    from safetensors.numpy import load

    with reading(path):
        return load(payload)


def read_arrays(path: Path) -> dict[str, Array]:
    """Read the arrays of an .npz file, by name."""
    with reading(path), path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)
