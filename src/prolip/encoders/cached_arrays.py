"""Arrays that are computed once and cached on disk, with a checksum that every read verifies."""

import contextlib
from collections.abc import Callable

import numpy as np

from prolip.core.arrays import Array
from prolip.core.errors import ProlipError
from prolip.io.files import cache_dir, sha256_tensors
from prolip.io.reading import parse_tensors, read_bytes
from prolip.io.writing import write_tensors


def cached_arrays(
    name: str, make: Callable[[], dict[str, Array]]
) -> tuple[dict[str, Array], ProlipError | None]:
    """Return the arrays of `make`, from the cache if they are intact; and the error if they cannot be cached.

    `name` must identify everything that the arrays are computed from.
    """
    path = cache_dir() / f"{name}.safetensors"
    with contextlib.suppress(ProlipError):
        arrays = parse_tensors(read_bytes(path), path)
        if np.array_equal(arrays.pop("sha256", np.zeros(0)), _digest(name, arrays)):
            return arrays, None
    arrays = make()
    try:
        write_tensors(path, {**arrays, "sha256": _digest(name, arrays)})
    except ProlipError as error:
        return arrays, error
    return arrays, None


def _digest(name: str, arrays: dict[str, Array]) -> Array:
    digest = sha256_tensors((f"{name}.{key}", array) for key, array in arrays.items())
    return np.frombuffer(bytes.fromhex(digest), np.uint8)
