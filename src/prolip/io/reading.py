"""Read untrusted files with limits: one reader for each format, and a `ProlipError` for any content.

Only regular files are opened (a pipe would hang, a device never end), and none larger than its limit. The
headers of arrays are checked before anything is allocated: numbers and text only, and no more of them than
fit into the file. Members of archives are decompressed in small blocks, so that the limit holds for the
output, whatever a header claims.
"""

import csv
import io
import json
import math
import os
import re
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from prolip.core.arrays import Array
from prolip.core.errors import InputError, MissingFileError, SavedModelError, first_line

MEGABYTE = 1 << 20
JSON_LIMIT = 64 * MEGABYTE
JSON_ITEMS = 4_000_000  # values in a JSON text: an empty list takes twenty times its three characters
TEXT_LIMIT = 256 * MEGABYTE
FILE_LIMIT = 64 << 30
LINE_LIMIT = 4 * MEGABYTE
MEMBERS = 1000  # arrays in an .npz
UNPACKED = 64 * MEGABYTE  # a larger .npz may not unpack to more than RATIO times its size
RATIO = 20  # features of floating point shrink by a half at most
TEXTS = 4_000_000  # texts in an array, lines of a table: each takes some 60 bytes more than in the file
CELLS = 10_000  # in a row of a table
BLOCK = MEGABYTE // 4  # bytes that are decompressed at a time

_METHODS = {9: "deflate64", 12: "bzip2", 14: "LZMA", 93: "Zstandard", 95: "XZ"}  # of compression in a .zip
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


class ReadError(InputError):
    """A file cannot be read; `path` says which, `reason` why."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot read {path}: {reason}")
        self.path, self.reason = path, reason


def open_regular(path: str | os.PathLike[str], limit: int = FILE_LIMIT) -> IO[bytes]:
    """Open a regular file, not larger than the limit, for reading."""
    place = Path(path)
    try:
        handle = os.open(place, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:  # a name with a null character is a ValueError
        if isinstance(error, FileNotFoundError):
            raise MissingFileError(f"{place} does not exist") from error
        raise ReadError(place, getattr(error, "strerror", None) or str(error)) from error
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        problem = ReadError(place, f"it is {kind}")
    elif status.st_size > limit:
        problem = ReadError(place, f"it has {_size(status.st_size)}, the limit is {_size(limit)}")
    else:
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise problem


def read_bytes(path: str | os.PathLike[str], limit: int = FILE_LIMIT) -> bytes:
    """Read a regular file."""
    with open_regular(path, limit) as file:
        try:
            return file.read(os.fstat(file.fileno()).st_size)
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
    """Parse untrusted JSON; deep nesting and too many values are a ValueError, too."""
    if _items(text) > JSON_ITEMS and _items(_STRING.sub("", text)) > JSON_ITEMS:
        raise ValueError(f"it holds more than {JSON_ITEMS:,} values")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _items(text: str) -> int:
    return sum(map(text.count, ",[{"))


def read_rows(path: str | os.PathLike[str], delimiter: str = ",") -> list[list[str]]:
    """Read the rows of a CSV file that are not empty."""
    try:
        return [row for _, row in csv_rows(read_text(path, JSON_LIMIT), delimiter) if row]
    except csv.Error as error:
        raise ReadError(Path(path), f"it is not CSV: {error}") from error


def csv_rows(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV text, each with the number of its last line."""

    def lines() -> Iterator[str]:  # io.StringIO would take four bytes for every character
        for number, found in enumerate(_LINE.finditer(text)):
            if number == TEXTS:
                raise csv.Error(f"it has more than {TEXTS:,} lines")
            if found[0].count(delimiter) > CELLS:
                raise csv.Error(f"a row has more than {CELLS:,} cells")
            yield found[0]

    csv.field_size_limit(max(TEXT_LIMIT, csv.field_size_limit()))  # of a cell; of the whole process
    reader = csv.reader(lines(), delimiter=delimiter, strict=True)
    for row in reader:
        yield reader.line_num, row


def read_lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    """Yield the lines of an open file, with their ends; only the last may lack one."""
    while line := file.readline(LINE_LIMIT):
        if len(line) == LINE_LIMIT:
            raise ReadError(path, f"it has a line of more than {_size(LINE_LIMIT)}")
        yield line


def parse_tensors(payload: bytes, path: Path) -> dict[str, Array]:
    """Parse the content of a safetensors file; `path` is for the error. NumPy has no bfloat16: an error."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(payload)
    except (SafetensorError, KeyError, ValueError, TypeError, AttributeError, MemoryError) as error:
        raise SavedModelError(f"{path} cannot be read: {first_line(error)}") from error


def read_array(path: Path, mapped: bool = False) -> Array:
    """Read an .npy file; `mapped` leaves it on the disk."""
    with open_regular(path) as file:
        _check_header(file, path, os.fstat(file.fileno()).st_size)
        if not mapped:
            file.seek(0)
            return _load(file, path)
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        return array
    except (ValueError, OSError) as error:
        raise ReadError(path, str(error)) from error


def read_arrays(path: Path) -> dict[str, Array]:
    """Read the arrays of an .npz file, by name."""
    with open_regular(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return _members(archive, path, os.fstat(file.fileno()).st_size)
        except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError) as error:
            raise ReadError(path, f"it is damaged: {first_line(error)}") from error


def _members(archive: zipfile.ZipFile, path: Path, size: int) -> dict[str, Array]:
    entries = archive.infolist()
    unpacked = sum(entry.file_size for entry in entries)
    if len(entries) > MEMBERS:
        raise ReadError(path, f"it holds {len(entries)} arrays, {MEMBERS} are the limit")
    if unpacked > max(UNPACKED, RATIO * size):
        raise ReadError(path, f"its {_size(size)} unpack to {_size(unpacked)}: save it uncompressed")
    arrays: dict[str, Array] = {}
    for entry in entries:
        name = entry.filename.removesuffix(".npy")
        if name in arrays:
            raise ReadError(path, f"it holds two arrays called {name!r}")
        check_compression(entry, path)
        try:
            with open_member(archive, entry) as member:
                _check_header(member, path, entry.file_size)
            with open_member(archive, entry) as member:
                arrays[name] = _load(member, path)
        except InputError:
            raise
        except Exception as error:  # a damaged stream ends in whatever its decompressor raises
            raise ReadError(path, f"{entry.filename} is damaged: {first_line(error)}") from error
    return arrays


def check_compression(entry: zipfile.ZipInfo, path: Path) -> None:
    """Reject a member of a .zip that is neither stored nor deflated."""
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        method = _METHODS.get(entry.compress_type, f"method {entry.compress_type}")
        raise ReadError(
            path,
            f"{entry.filename} is compressed with {method}: pack it again with deflate, or unpack it and "
            "name the folder",
        )


@contextmanager
def open_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[IO[bytes]]:
    """Open a member of a .zip, stored or deflated; its output ends at the size that its entry claims."""
    with archive.open(entry) as member:
        yield _Blocks(member)  # type: ignore[misc]


class _Blocks:
    """A stream that decompresses a block at a time, however much is requested.

    `zipfile` passes the whole request to zlib, and truncates the output to the claimed size afterwards.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def read(self, size: int) -> bytes:
        content = io.BytesIO()  # its value is not copied
        while (left := size - content.tell()) and (block := self._stream.read(min(left, BLOCK))):
            content.write(block)
        return content.getvalue()


def _check_header(file: IO[bytes], path: Path, size: int) -> None:
    """Reject an array of anything but numbers and text, or larger than the file."""
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
    except Exception as error:  # the header is Python text, and may be anything
        raise ReadError(path, f"it is not an array of NumPy: {first_line(error)}") from error
    if dtype.hasobject or dtype.kind not in "biufUS":
        raise ReadError(path, f"it holds {dtype}, and only numbers and text are read")
    # An empty array may still claim any number of empty rows.
    if min(shape, default=0) < 0 or math.prod(max(1, n) for n in shape) * max(1, dtype.itemsize) > size:
        raise ReadError(path, f"it claims an array of shape {list(shape)}, and has {_size(size)}")


def _load(file: IO[bytes], path: Path) -> Array:
    try:
        found: Array = npy.read_array(file, allow_pickle=False)
        if found.dtype.kind in "SU" and found.size > TEXTS:
            raise ReadError(path, f"it holds {found.size:,} texts, {TEXTS:,} are the limit: use numbers")
        if found.dtype.kind == "S":
            found = np.char.decode(found, "utf-8")
        if found.dtype.kind == "U":
            found.reshape(-1).tolist()  # fails on a number that is not a character
        return found
    except ReadError:
        raise
    except (ValueError, OSError, EOFError, MemoryError) as error:
        raise ReadError(path, f"it is damaged: {first_line(error)}") from error


def _size(count: int) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 10_000 or unit == "GB":
            return f"{count:.0f} {unit}"
        count /= 1000  # type: ignore[assignment]
    raise AssertionError
