"""Files from outside end in an error of ours, whatever they hold."""

import random

import numpy as np
import pytest

from prolip.core import InputError, ProlipError
from prolip.io.reading import ReadError, parse_tensors, read_arrays, read_bytes, read_json
from prolip.io.writing import write_tensors

SEED, ROUNDS = 0, 300


@pytest.mark.parametrize("name", ["missing", "", "a\0b", "x" * 300])
def test_files_that_cannot_be_opened(tmp_path, name):
    with pytest.raises(InputError):
        read_bytes(tmp_path / name)


@pytest.mark.parametrize("data", [b"[" * 100_000, b"{", b"", b"\xed\xa0\x80"])
def test_json_that_is_none(tmp_path, data):
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(ReadError):
        read_json(tmp_path / "a.json")


def test_pickles_are_refused(tmp_path):
    np.savez(tmp_path / "o.npz", x=np.array([{}], dtype=object))
    with pytest.raises(ReadError):
        read_arrays(tmp_path / "o.npz")


def originals(folder):
    """An intact file of each kind, and its reader."""
    x = np.random.default_rng(SEED).normal(size=(5, 8)).astype(np.float32)
    np.savez_compressed(folder / "z.npz", x=x, y=np.arange(5), classes=np.array(["a", "b"]))
    write_tensors(folder / "a.safetensors", {"x": x, "y": np.arange(5)})
    (folder / "a.json").write_text('{"a": [1, 2.5, "x"], "b": {"c": null}}')
    readers = {
        "npz": read_arrays,
        "safetensors": lambda path: parse_tensors(read_bytes(path), path),
        "json": read_json,
    }
    return {path: readers[path.suffix[1:]] for path in folder.iterdir()}


def damaged(data, rng):
    """The bytes with a few of them changed, cut out, put in or repeated."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at, kind = rng.randrange(len(data) or 1), rng.randrange(4)
        if kind == 0 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at : at + rng.randint(1, 40)]
        elif kind == 2:
            data[at:at] = rng.randbytes(rng.randint(1, 20))
        else:
            data = data[:at]
    return bytes(data)


def test_damaged_files_are_read_or_refused(tmp_path):
    rng, refused = random.Random(SEED), 0
    for path, read in originals(tmp_path).items():
        read(path)
        data = path.read_bytes()
        for _ in range(ROUNDS):
            path.write_bytes(damaged(data, rng))
            try:
                read(path)
            except ProlipError:
                refused += 1
    assert refused > ROUNDS
