"""Reading a checkpoint of torch's first file format, without torch and without running what it says.

Such a file is five pickles (a magic number, a version, the sizes of types, the tensors, the list of storages)
and then each storage: how many numbers there are, as an int64, and the numbers. A tensor in the fourth pickle
is a call of `torch._utils._rebuild_tensor_v2` on a storage's key, an offset, sizes and strides.

A pickle is a program that may import and call anything. The one here may name four things, each of which is
mapped to something of ours that only notes its arguments down; whatever else it asks for is refused. Besides,
we read one known file only, whose SHA-256 is checked before (`packaged.py`).
"""

import io
import math
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prolip.core.arrays import Array
from prolip.core.errors import ModelError
from prolip.io.reading import read_bytes

_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001


class _Storage(NamedTuple):
    """A run of numbers that comes later in the file."""

    key: str
    dtype: str
    length: int


class _Tensor(NamedTuple):
    """Which numbers of a storage make up a tensor."""

    storage: _Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


def _rebuild_tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> _Tensor:
    return _Tensor(storage, offset, size, stride)


_KNOWN = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch", "FloatStorage"): "<f4",
    ("torch", "LongStorage"): "<i8",
}


class _Unpickler(pickle.Unpickler):
    """Finds what is in `_KNOWN`, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise ModelError(f"the file asks for {module}.{name}, which no weights need") from None

    def persistent_load(self, saved: Any) -> _Storage:
        _, dtype, key, _, length, _ = saved
        return _Storage(key, dtype, length)


def read_checkpoint(path: Path) -> dict[str, Array]:
    """The tensors of a checkpoint by name."""
    try:
        stream = io.BytesIO(read_bytes(path))
        magic, version, _, tensors, keys = (_Unpickler(stream).load() for _ in range(5))
        if (magic, version) != (_MAGIC, _VERSION):
            raise ValueError("it does not begin as such a file does")
        kinds = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
        storages = {key: _read_storage(stream, kinds[key]) for key in keys}
        return {key: _view(storages[tensor.storage.key], tensor) for key, tensor in tensors.items()}
    except ModelError as error:
        raise ModelError(f"{path} is refused: {error}") from error
    except Exception as error:  # a damaged pickle can fail in any way
        raise ModelError(f"{path} is no checkpoint that can be read: {error}") from error


def _read_storage(stream: io.BytesIO, storage: _Storage) -> Array:
    count = int.from_bytes(stream.read(8), "little")
    if count != storage.length:
        raise ValueError(f"a storage holds {count} numbers, not {storage.length}")
    dtype = np.dtype(storage.dtype)
    return np.frombuffer(stream.read(count * dtype.itemsize), dtype, count)


def _view(storage: Array, tensor: _Tensor) -> Array:
    """The numbers of a tensor, in the order of its axes; strides count numbers, not bytes."""
    if math.prod(tensor.size) > len(storage):
        raise ValueError(f"a tensor of shape {list(tensor.size)} from {len(storage)} numbers")
    # Position of every element in its storage; indexing refuses one that lies outside.
    position = np.full(tensor.size, tensor.offset)
    for axis, (size, stride) in enumerate(zip(tensor.size, tensor.stride, strict=True)):
        steps = np.arange(size) * stride
        position += steps.reshape(-1, *[1] * (len(tensor.size) - axis - 1))
    return np.asarray(storage[position])  # a tensor without axes would come out as a plain number
