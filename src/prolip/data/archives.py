"""Read a .zip, .tar or .tar.gz of folders without unpacking it into the file system.

Members of a .zip are unpacked one at a time, when their images are read. In a .tar an image is a part of the
file. A .tar.gz is decompressed into a temporary file without a name, which no interruption leaves behind.
"""

from __future__ import annotations

import gzip
import os
import tarfile
import tempfile
import weakref
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import IO

from prolip.core.errors import InputError, ProlipError
from prolip.data.files import is_hidden, is_image
from prolip.data.imageset import LazyImage
from prolip.io.reading import MEGABYTE, ReadError, check_compression, open_member, open_regular

ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz")
MEMBERS = 1_000_000
UNPACKED = 64 << 30  # bytes of all members together
RATIO = 50  # that a .tar.gz of more than a gigabyte may unpack to: images are compressed already
MEMBER = 256 * MEGABYTE  # bytes of one member, which is in memory as a whole
_HEADER = MEGABYTE  # bytes of a member's header in a .tar
_BLOCK = MEGABYTE


Members = Iterator[tuple[tuple[str, ...], LazyImage]]  # the folders to a file and its name; its content


@dataclass(frozen=True, eq=False)
class ArchiveFolder:
    """A folder in an archive: its folders and files by name, and its path for messages."""

    place: str
    folders: dict[str, ArchiveFolder] = field(default_factory=dict)
    files: dict[str, LazyImage] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The last part of its place."""
        return self.place.rpartition("/")[2]

    def __str__(self) -> str:
        return self.place

    def images(self) -> Iterator[LazyImage]:
        """Yield every image below this folder."""
        waiting = [self]
        while waiting:
            inside = waiting.pop()
            yield from (inside.files[name] for name in sorted(inside.files) if is_image(inside.files[name]))
            waiting += [inside.folders[name] for name in sorted(inside.folders, reverse=True)]

    def find(self, name: str) -> LazyImage:
        """Return the file of this relative name."""
        *parents, last = name.split("/")
        folder: ArchiveFolder | None = self
        for part in parents:
            folder = folder and (folder if part in ("", ".") else folder.folders.get(part))
        if folder is None or last not in folder.files:
            raise InputError(f"{name!r:.200} is not a file in {self}")
        return folder.files[last]


def is_archive(path: Path) -> bool:
    """Whether a file has the suffix of an archive."""
    return path.name.lower().endswith(ARCHIVE_SUFFIXES)


def open_archive(path: Path) -> ArchiveFolder:
    """Open an archive. A single folder around everything is skipped."""
    members = _zip_members if path.name.lower().endswith(".zip") else _tar_members
    root = ArchiveFolder(str(path))
    count = unpacked = 0
    try:
        for parts, content in members(path):
            count, unpacked = count + 1, unpacked + content.size
            if count > MEMBERS:
                raise ReadError(path, f"it holds more than {MEMBERS:,} files")
            if unpacked > UNPACKED:
                raise ReadError(path, f"it unpacks to more than {UNPACKED >> 30} GB")
            if ".." not in parts and not any(map(is_hidden, parts)):
                _put(root, parts, content)
    except ProlipError:
        raise
    except Exception as error:  # a damaged archive can raise anything
        raise ReadError(path, f"it is damaged: {str(error)[:200] or type(error).__name__}") from error
    while not root.files and len(root.folders) == 1:
        (inner,) = root.folders.values()
        if not inner.folders:
            break
        root = inner
    return root


def _put(root: ArchiveFolder, parts: tuple[str, ...], content: LazyImage) -> None:
    folder = root
    for part in parts[:-1]:
        folder = folder.folders.setdefault(part, ArchiveFolder(f"{folder.place}/{part}"))
    folder.files[parts[-1]] = content


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part for part in name.replace("\\", "/").split("/") if part not in ("", "."))


def _zip_members(path: Path) -> Members:
    file = open_regular(path)
    try:
        archive = zipfile.ZipFile(file)
    except BaseException:
        file.close()
        raise
    weakref.finalize(archive, file.close)
    seen: set[tuple[str, ...]] = set()
    for entry in archive.infolist():
        if entry.is_dir() or not (parts := _parts(entry.filename)):
            continue
        if entry.flag_bits & 1:
            raise ReadError(path, f"{entry.filename} has a password: unpack it, and name the folder")
        check_compression(entry, path)
        if parts in seen:
            raise ReadError(path, f"it holds two files called {'/'.join(parts)!r}: remove one of them")
        seen.add(parts)
        load = partial(_unzip, archive, entry)
        yield parts, LazyImage("/".join((str(path), *parts)), load, entry.file_size)


def _unzip(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    _check_size(entry.file_size)
    with open_member(archive, entry) as member:
        return member.read(entry.file_size + 1)


def _tar_members(path: Path) -> Members:
    file = open_regular(path)
    if file.peek(2)[:2] == b"\x1f\x8b":  # type: ignore[attr-defined]
        with file:
            file = _decompressed(file, path)
    part = _FilePart(file)
    with tarfile.open(fileobj=_Headers(file), mode="r:") as archive:  # type: ignore[call-overload]
        for entry in archive:
            if entry.isreg() and not entry.issparse() and (parts := _parts(entry.name)):
                load = partial(part.read, entry.offset_data, entry.size)
                yield parts, LazyImage("/".join((str(path), *parts)), load, entry.size)


def _decompressed(file: IO[bytes], path: Path) -> IO[bytes]:
    plain = tempfile.TemporaryFile()  # noqa: SIM115 - `_FilePart` closes it
    limit = min(UNPACKED, max(1 << 30, RATIO * os.fstat(file.fileno()).st_size))
    try:
        with gzip.open(file) as stream:
            while block := stream.read(_BLOCK):
                if plain.tell() > limit:
                    raise ReadError(path, f"it unpacks to more than {limit >> 30} GB: unpack it yourself")
                plain.write(block)
        plain.seek(0)
    except BaseException:
        plain.close()
        raise
    return plain


class _Headers:
    """A file that returns no more at once than the header of a member takes."""

    def __init__(self, file: IO[bytes]) -> None:
        self.seek, self.tell, self._file = file.seek, file.tell, file

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _HEADER:
            raise InputError(f"a header claims {size} bytes")
        return self._file.read(size)


class _FilePart:
    """Parts of a file, for several threads; it is closed when no image refers to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._lock = file, Lock()
        weakref.finalize(self, file.close)

    def read(self, start: int, size: int) -> bytes:
        _check_size(size)
        with self._lock:
            self._file.seek(start)
            content = self._file.read(size)
        if len(content) < size:
            raise InputError("the archive ends before it")
        return content


def _check_size(size: int) -> None:
    if size > MEMBER:
        raise InputError(
            f"it unpacks to {size >> 20} MB, the limit is {MEMBER >> 20} MB: unpack it, and name the folder"
        )
