"""Files from outside end in an error of ours, soon, and without much memory, whatever they hold."""

import io
import json
import os
import random
import tracemalloc
import zipfile
import zlib
from functools import partial

import numpy as np
import pytest

from prolip.core import InputError, ProlipError
from prolip.io import reading
from prolip.io.reading import (
    ReadError,
    open_regular,
    parse_json,
    parse_tensors,
    read_array,
    read_arrays,
    read_bytes,
    read_json,
    read_rows,
    read_text,
)
from prolip.io.writing import write_tensors

SEED, ROUNDS = 0, 300


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "zero", "loop", "folder", "missing", "a\0b", "x" * 300):
        with pytest.raises(InputError):
            open_regular(tmp_path / name)


def test_limits_are_checked_before_reading(tmp_path):
    with (tmp_path / "large").open("wb") as file:
        file.truncate(10 << 30)  # no block of it is on the disk
    for read in (read_json, read_text, read_rows):
        with pytest.raises(ReadError):
            read(tmp_path / "large")


@pytest.mark.parametrize("data", [b"[" * 100_000, b"1" * 5000, b"{", b"", b"\xed\xa0\x80"])
def test_json_that_is_none(tmp_path, data):
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(ReadError):
        read_json(tmp_path / "a.json")


def test_rows_of_a_table(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbfa,b\r\n\r\n"x\ny",z\r\n')
    assert read_rows(tmp_path / "a.csv") == [["a", "b"], ["x\ny", "z"]]
    (tmp_path / "a.csv").write_text('"' + "x" * 200_000)
    with pytest.raises(ReadError):
        read_rows(tmp_path / "a.csv")


def test_arrays_come_back(tmp_path):
    x, names = np.arange(12, dtype=np.float32).reshape(3, 4), np.array(["a", "b"])
    np.save(tmp_path / "a.npy", x)
    np.savez_compressed(tmp_path / "a.npz", x=x, names=names)
    np.testing.assert_array_equal(read_array(tmp_path / "a.npy"), x)
    np.testing.assert_array_equal(read_array(tmp_path / "a.npy", mapped=True), x)
    found = read_arrays(tmp_path / "a.npz")
    np.testing.assert_array_equal(found["x"], x)
    assert found["names"].tolist() == ["a", "b"]


def test_objects_bombs_and_claims_are_refused_by_their_headers(tmp_path):
    np.save(tmp_path / "o.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ReadError):
        read_array(tmp_path / "o.npy")
    np.savez_compressed(tmp_path / "bomb.npz", x=np.zeros(100 << 20, np.uint8))
    assert (tmp_path / "bomb.npz").stat().st_size < 1 << 20
    with pytest.raises(ReadError):
        read_arrays(tmp_path / "bomb.npz")
    np.save(tmp_path / "c.npy", np.zeros(4, np.float32))
    claimed = (tmp_path / "c.npy").read_bytes().replace(b"(4,), }     ", b"(4000000000,)}")[:140]
    (tmp_path / "c.npy").write_bytes(claimed)
    with pytest.raises(ReadError):
        read_array(tmp_path / "c.npy")


@pytest.mark.parametrize("kind", ["<U0", "|S0"])
def test_items_of_no_bytes_are_counted_too(tmp_path, kind):
    made = io.BytesIO()
    header = {"descr": kind, "fortran_order": False, "shape": (20_000_000,)}
    np.lib.format.write_array_header_1_0(made, header)
    (tmp_path / "a.npy").write_bytes(made.getvalue())
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", made.getvalue())
    for read in (read_array, partial(read_array, mapped=True)):
        with pytest.raises(ReadError):
            read(tmp_path / "a.npy")
    with pytest.raises(ReadError):
        read_arrays(tmp_path / "a.npz")


def originals(folder):
    """One honest file of each kind, and its reader."""
    rng = np.random.default_rng(SEED)
    x = rng.normal(size=(5, 8)).astype(np.float32)
    np.save(folder / "a.npy", x)
    np.savez(folder / "a.npz", x=x, y=np.arange(5), classes=np.array(["a", "b"]))
    np.savez_compressed(folder / "z.npz", x=x, y=np.arange(5))
    write_tensors(folder / "a.safetensors", {"x": x, "y": np.arange(5)})
    (folder / "a.json").write_text('{"a": [1, 2.5, "x"], "b": {"c": null}}')
    (folder / "a.csv").write_text("label,file\ncat,a.jpg\n")
    readers = {
        "npy": read_array,
        "npz": read_arrays,
        "safetensors": lambda path: parse_tensors(read_bytes(path), path),
        "json": read_json,
        "csv": read_rows,
    }
    return {path: readers[path.suffix[1:]] for path in folder.iterdir()}


def damaged(data, rng):
    """The bytes with a few of them changed, cut out, put in or repeated."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at, kind = rng.randrange(len(data) or 1), rng.randrange(5)
        if kind == 0 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at : at + rng.randint(1, 40)]
        elif kind == 2:
            data[at:at] = rng.randbytes(rng.randint(1, 20))
        elif kind == 3:
            data = data[:at]
        else:
            data[at:at] = data[at : at + 30]
    return bytes(data)


def test_damaged_files_are_read_or_refused(tmp_path):
    rng, refused = random.Random(SEED), 0
    for path, read in originals(tmp_path).items():
        data = path.read_bytes()
        for _ in range(ROUNDS):
            path.write_bytes(damaged(data, rng))
            try:
                read(path)
            except ProlipError:
                refused += 1
    assert refused > ROUNDS


def test_an_archive_that_lies_about_sizes(tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(1 << 20))
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", buffer.getvalue())
    data = (tmp_path / "a.npz").read_bytes()
    size = len(buffer.getvalue())
    (tmp_path / "a.npz").write_bytes(data.replace(size.to_bytes(4, "little"), (200).to_bytes(4, "little")))
    with pytest.raises(ReadError):
        read_arrays(tmp_path / "a.npz")


def zip_entry(path, name, content, method, claimed=None):
    """A .zip of one member that claims another size than it has."""
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(name, content)
    if claimed is None:
        return
    data = bytearray(path.read_bytes())
    for signature, crc, size in ((b"PK\3\4", 14, 22), (b"PK\1\2", 16, 24)):
        place = data.index(signature)
        data[place + crc : place + crc + 4] = zlib.crc32(content[:claimed]).to_bytes(4, "little")
        data[place + size : place + size + 4] = claimed.to_bytes(4, "little")
    path.write_bytes(data)


def array(shape, dtype=np.uint8):
    stream = io.BytesIO()
    np.save(stream, np.zeros(shape, dtype))
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["<U1", "|S1", "<f4"])
def test_an_empty_array_does_not_claim_billions_of_empty_rows(tmp_path, kind):
    header = (
        f"{{'descr': '{kind}', 'fortran_order': False, 'shape': (2147483647, 2147483647, 0), }}\n".encode()
    )
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(ReadError):
        read_array(tmp_path / "a.npy")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_arrays_are_stored_or_deflated(tmp_path, method):
    zip_entry(tmp_path / "a.npz", "x.npy", array(1000), method)
    with pytest.raises(ReadError, match="bzip2" if method == zipfile.ZIP_BZIP2 else "LZMA"):
        read_arrays(tmp_path / "a.npz")


def test_no_more_is_decompressed_than_an_archive_claims(tmp_path, monkeypatch):
    """The member has 50 MB; whoever asks for its header, of which it claims more, gets no more than 1000."""
    content = b"\x93NUMPY\2\0" + (2**32 - 1).to_bytes(4, "little") + bytes(50 << 20)
    zip_entry(tmp_path / "a.npz", "x.npy", content, zipfile.ZIP_DEFLATED, 1000)
    tracemalloc.start()
    try:
        with pytest.raises(ReadError):
            read_arrays(tmp_path / "a.npz")
        assert tracemalloc.get_traced_memory()[1] < 5 << 20
    finally:
        tracemalloc.stop()


def test_two_arrays_of_one_name_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", array(3))
        archive.writestr("x", array(4))
    with pytest.raises(ReadError):
        read_arrays(tmp_path / "a.npz")


def test_texts_in_arrays_rows_and_values_have_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "TEXTS", 10)
    monkeypatch.setattr(reading, "CELLS", 10)
    monkeypatch.setattr(reading, "JSON_ITEMS", 10)
    np.save(tmp_path / "a.npy", np.array(["a"] * 11))
    with pytest.raises(ReadError):
        read_array(tmp_path / "a.npy")
    for text in ("a\n" * 11, "a," * 11):
        (tmp_path / "a.csv").write_text(text)
        with pytest.raises(ReadError):
            read_rows(tmp_path / "a.csv")
    with pytest.raises(ValueError, match="values"):
        parse_json("[" + "[]," * 11 + "0]")
    assert parse_json(json.dumps(["," * 100, '"[{'])) == ["," * 100, '"[{']


def test_a_cell_may_be_long(tmp_path):
    (tmp_path / "a.csv").write_text("a," + "x" * 200_000)
    assert len(read_rows(tmp_path / "a.csv")[0][1]) == 200_000
