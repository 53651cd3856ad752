"""Untrusted files, read with limits: one reader for each kind, and an error of ours whatever they hold.

Only regular files are opened (a pipe would hang, a device never end), and none larger than its limit. Arrays
are looked at by their headers before anything is allocated: plain numbers and text only, and no more of them
than the file can hold. Members of archives are decompressed in small blocks, so that a limit holds for what
comes out, whatever a header claims.
"""

import csv
import io
import itertools
import json
import math
import os
import re
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from prolip.core.arrays import Array
from prolip.core.errors import InputError, SavedModelError, first_line

MEGABYTE = 1 << 20
JSON_LIMIT = 64 * MEGABYTE
JSON_ITEMS = 4_000_000  # values in a JSON text: an empty list takes twenty times its three characters
TEXT_LIMIT = 256 * MEGABYTE
FILE_LIMIT = 64 << 30
LINE_LIMIT = 4 * MEGABYTE
MEMBERS = 1000  # arrays in an .npz
UNPACKED = 64 * MEGABYTE  # beyond which an .npz may not unpack to more than RATIO times its size
RATIO = 20  # features of floating point shrink by a half at most
TEXTS = 4_000_000  # texts in an array, lines of a table: each takes some 60 bytes more than in the file
CELLS = 10_000  # in a row of a table
BLOCK = MEGABYTE // 4  # bytes that are decompressed at a time

_METHODS = {
    9: "deflate64",
    12: "bzip2",
    14: "LZMA",
    93: "Zstandard",
    95: "XZ",
}  # how a .zip may be compressed
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_csv_limit = Lock()


class Unreadable(InputError):  # noqa: N818 - reads as what it is where it is caught
    """A file that cannot be read: which, and why."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot read {path}: {reason}")
        self.path, self.reason = path, reason


class TooLarge(Unreadable):
    """A file exceeds a limit, or would unpack to more than it."""


class UnsupportedCompression(InputError):  # noqa: N818
    """A member of a .zip or .npz that is neither stored nor deflated; `method` is its number."""

    def __init__(self, name: str, method: int) -> None:
        known = _METHODS.get(method, f"method {method}")
        super().__init__(
            f"{name} is compressed with {known}: pack it again with deflate, or unpack it and name the folder"
        )
        self.method = method


def open_regular(path: str | os.PathLike[str], limit: int = FILE_LIMIT) -> IO[bytes]:
    """A regular file, open for reading; anything else, and what is larger than the limit, is refused."""
    place = Path(path)
    try:
        handle = os.open(place, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:  # a name with a null character is a ValueError
        raise Unreadable(place, getattr(error, "strerror", None) or str(error)) from error
    found, reason = os.fstat(handle), None
    if not stat.S_ISREG(found.st_mode):
        reason = "it is a folder" if stat.S_ISDIR(found.st_mode) else "it is not a regular file"
    elif found.st_size > limit:
        os.close(handle)
        raise TooLarge(place, f"it has {_size(found.st_size)}, the limit is {_size(limit)}")
    if reason is not None:
        os.close(handle)
        raise Unreadable(place, reason)
    return os.fdopen(handle, "rb")


def read_bytes(path: str | os.PathLike[str], limit: int = FILE_LIMIT) -> bytes:
    """The content of a regular file."""
    with open_regular(path, limit) as file:
        try:
            return file.read(os.fstat(file.fileno()).st_size)
        except OSError as error:
            raise Unreadable(Path(path), error.strerror or str(error)) from error


def read_text(path: str | os.PathLike[str], limit: int = TEXT_LIMIT) -> str:
    """The text of a UTF-8 file, with or without a byte order mark."""
    try:
        return read_bytes(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(Path(path), f"it is not UTF-8 (byte {error.start})") from error


def read_json(path: str | os.PathLike[str], limit: int = JSON_LIMIT) -> Any:
    """What a JSON file holds."""
    text = read_text(path, limit)
    try:
        return parse_json(text)
    except ValueError as error:
        raise Unreadable(Path(path), f"it is not JSON: {error}") from error


def parse_json(text: str) -> Any:
    """What a JSON text holds; if it is nested too deeply or has too many values, that is a ValueError too."""
    if _items(text) > JSON_ITEMS and _items(_STRING.sub("", text)) > JSON_ITEMS:
        raise ValueError(f"it holds more than {JSON_ITEMS:,} values")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _items(text: str) -> int:
    return sum(map(text.count, ",[{"))


def read_rows(path: str | os.PathLike[str], delimiter: str = ",") -> list[list[str]]:
    """The rows of a CSV file that are not empty."""
    try:
        return [row for _, row in csv_rows(read_text(path, JSON_LIMIT), delimiter) if row]
    except csv.Error as error:
        raise Unreadable(Path(path), f"it is not CSV: {error}") from error


def csv_rows(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV text, each with the number of its last line; a cell may be as long as a text."""

    def lines() -> Iterator[str]:  # io.StringIO would take four bytes for every character
        for number, found in enumerate(_LINE.finditer(text)):
            if number == TEXTS:
                raise csv.Error(f"it has more than {TEXTS:,} lines")
            if found[0].count(delimiter) > CELLS:
                raise csv.Error(f"a row has more than {CELLS:,} cells")
            yield found[0]

    reader = csv.reader(lines(), delimiter=delimiter, strict=True)
    rows: list[tuple[int, list[str]]] | None = None
    while rows is None or rows:
        rows, failure = [], None
        with _long_cells():
            try:
                for row in itertools.islice(reader, 100):
                    rows.append((reader.line_num, row))
            except csv.Error as error:
                failure = error
        yield from rows
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # which would hold on to the text


@contextmanager
def _long_cells() -> Iterator[None]:
    """Raise the limit on cells, which the csv module has for the whole process, while rows are read."""
    with _csv_limit:
        before = csv.field_size_limit(TEXT_LIMIT)
        try:
            yield
        finally:
            csv.field_size_limit(before)


def read_lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    """The lines of an open file, with their ends; only the last may lack one."""
    while line := file.readline(LINE_LIMIT):
        if len(line) == LINE_LIMIT:
            raise TooLarge(path, f"it has a line of more than {_size(LINE_LIMIT)}")
        yield line


def read_tensors(path: Path) -> dict[str, Array]:
    """The arrays of a safetensors file; bfloat16, which NumPy does not have, is refused."""
    return parse_tensors(read_bytes(path), path)


def parse_tensors(payload: bytes, path: Path) -> dict[str, Array]:
    """The arrays in the content of a safetensors file; `path` is for the error."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(payload)
    except (SafetensorError, KeyError, ValueError, TypeError, AttributeError, MemoryError) as error:
        raise SavedModelError(f"{path} cannot be read: {first_line(error)}") from error


def tensors_metadata(payload: bytes) -> dict[str, Any]:
    """The words in the header of a safetensors file, whose tensors `parse_tensors` has read."""
    header = parse_json(payload[8 : 8 + int.from_bytes(payload[:8], "little")].decode())
    return dict(header.get("__metadata__") or {})


def read_array(path: Path, mapped: bool = False) -> Array:
    """The array of an .npy file; `mapped` leaves it on the disk."""
    with open_regular(path) as file:
        _check_header(file, path, os.fstat(file.fileno()).st_size)
        if not mapped:
            file.seek(0)
            return _load(file, path)
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError) as error:
        raise Unreadable(path, str(error)) from error


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file, by name."""
    with open_regular(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return _members(archive, path, os.fstat(file.fileno()).st_size)
        except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError) as error:
            raise Unreadable(path, f"it is damaged: {first_line(error)}") from error


def _members(archive: zipfile.ZipFile, path: Path, size: int) -> dict[str, Array]:
    entries = archive.infolist()
    unpacked = sum(entry.file_size for entry in entries)
    if len(entries) > MEMBERS:
        raise TooLarge(path, f"it holds {len(entries)} arrays, {MEMBERS} are the limit")
    if unpacked > max(UNPACKED, RATIO * size):
        raise TooLarge(path, f"its {_size(size)} unpack to {_size(unpacked)}: save it uncompressed")
    arrays: dict[str, Array] = {}
    for entry in entries:
        name = entry.filename.removesuffix(".npy")
        if name in arrays:
            raise Unreadable(path, f"it holds two arrays called {name!r}")
        try:
            with open_member(archive, entry) as member:
                _check_header(member, path, entry.file_size)
            with open_member(archive, entry) as member:
                arrays[name] = _load(member, path)
        except InputError:
            raise
        except Exception as error:  # a damaged stream ends in whatever its decompressor raises
            raise Unreadable(path, f"{entry.filename} is damaged: {first_line(error)}") from error
    return arrays


@contextmanager
def open_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[IO[bytes]]:
    """A member of a .zip, stored or deflated; what it gives ends at the size that its entry claims."""
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise UnsupportedCompression(entry.filename, entry.compress_type)
    with archive.open(entry) as member:
        yield _Blocks(member)  # type: ignore[misc]


class _Blocks:
    """A stream that decompresses a block at a time, however much is asked for.

    `zipfile` hands the whole of a request to zlib, and cuts what comes out to the claimed size afterwards.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def read(self, size: int) -> bytes:
        content = io.BytesIO()  # whose value is not copied
        while (left := size - content.tell()) and (block := self._stream.read(min(left, BLOCK))):
            content.write(block)
        return content.getvalue()


def _check_header(file: IO[bytes], path: Path, size: int) -> None:
    """Refuse an array that is more than numbers and text, or larger than the file has room for."""
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
    except Exception as error:  # the header is Python text, and may be anything
        raise Unreadable(path, f"it is not an array of NumPy: {first_line(error)}") from error
    if dtype.hasobject or dtype.kind not in "biufUS":
        raise Unreadable(path, f"it holds {dtype}, and only numbers and text are read")
    # An empty array may still claim any number of empty rows.
    if min(shape, default=0) < 0 or math.prod(max(1, n) for n in shape) * max(1, dtype.itemsize) > size:
        raise TooLarge(path, f"it claims an array of shape {list(shape)}, and has {_size(size)}")


def _load(file: IO[bytes], path: Path) -> Array:
    try:
        found: Array = npy.read_array(file, allow_pickle=False)
        if found.dtype.kind in "SU" and found.size > TEXTS:
            raise TooLarge(path, f"it holds {found.size:,} texts, {TEXTS:,} are the limit: use numbers")
        if found.dtype.kind == "S":
            found = np.char.decode(found, "utf-8")
        if found.dtype.kind == "U":
            found.reshape(-1).tolist()  # fails on a number that stands for no character
        return found
    except Unreadable:
        raise
    except (ValueError, OSError, EOFError, MemoryError) as error:
        raise Unreadable(path, f"it is damaged: {first_line(error)}") from error


def _size(count: int) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 10_000 or unit == "GB":
            return f"{count:.0f} {unit}"
        count /= 1000  # type: ignore[assignment]
    raise AssertionError
