"""Read files of JSON, text and arrays: any content that cannot be read is a `ReadError`.

Arrays hold numbers and text, never pickles.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core.arrays import Array
from prolip.core.errors import InputError, MissingFileError, ProlipError, first_line

Source = str | os.PathLike[str]


class ReadError(InputError):
    """A file cannot be read; `reason` says why."""

    def __init__(self, path: Source, reason: str) -> None:
        super().__init__(f"cannot read {path}: {reason}")
        self.reason = reason


@contextmanager
def reading(path: Source) -> Iterator[None]:
    """Turn any error inside into a `ReadError`: on damaged files, libraries raise nearly anything."""
    try:
        yield
    except ProlipError:
        raise
    except FileNotFoundError as error:
        raise MissingFileError(f"{path} does not exist") from error
    except Exception as error:
        raise ReadError(path, getattr(error, "strerror", None) or first_line(error)) from error


def read_bytes(path: Source) -> bytes:
    """Read a file."""
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
