"""Unpack a .zip, .tar or .tar.gz into a temporary folder, which lives as long as its images are in use.

An archive may come from anyone: it has a limit of bytes, and no member is written outside the folder.
"""

import gzip
import shutil
import tarfile
import tempfile
import weakref
import zipfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

from prolip.core.errors import InputError, first_line
from prolip.data.files import listing
from prolip.data.imageset import LazyImage
from prolip.io.reading import ReadError

ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz")
# What an archive may unpack to: 4 GB, or 20 times its size. Images are compressed already.
UNPACKED, RATIO = 4 << 30, 20
BLOCK = 4096  # bytes that a file takes on a disk at least
HEADER = 1 << 20  # bytes of a header in a .tar, which is in memory as a whole


def is_archive(path: Path) -> bool:
    """Whether this is a file with the suffix of an archive."""
    return path.name.lower().endswith(ARCHIVE_SUFFIXES) and not path.is_dir()


class Archive:
    """An archive and the temporary folder of its files, which is removed with the last image of it.

    The folder ends in the name of the archive, for messages.
    """

    def __init__(self, path: Path) -> None:
        temporary = tempfile.mkdtemp(prefix="prolip-")
        weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)
        self.path, self.folder = path, Path(temporary).resolve() / path.name
        self.folder.mkdir()
        try:
            _unpack(path, self.folder)
        except ReadError:
            raise
        except Exception as error:  # a damaged archive can raise anything
            raise ReadError(path, f"it cannot be unpacked: {first_line(error)}") from error

    @property
    def root(self) -> Path:
        """The outermost folder that holds more than one folder."""
        root = self.folder
        while (inside := listing(root)) and len(inside[0]) == 1 and not inside[1]:
            if not listing(inside[0][0])[0]:
                break
            root = inside[0][0]
        return root

    def images(self, images: Iterable[Path | LazyImage]) -> list[Any]:
        """Return images in the temporary folder as members of the archive."""
        return [
            LazyImage(str(image).replace(str(self.folder), str(self.path)), partial(self._load, image))
            for image in images
        ]

    def _load(self, image: Path | LazyImage) -> Any:
        return image.load() if isinstance(image, LazyImage) else image


def _unpack(path: Path, folder: Path) -> None:
    limit = max(UNPACKED, RATIO * path.stat().st_size)

    def check(size: int) -> int:
        if size > limit:
            raise ReadError(path, f"it unpacks to more than {limit / (1 << 30):.1f} GB: unpack it yourself")
        return size

    size = 0
    if path.name.lower().endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                entry.filename = entry.filename.replace("\\", "/")
                size = check(size + entry.file_size + BLOCK)
                if ".." not in PurePosixPath(entry.filename).parts:
                    archive.extract(entry, folder)
        return
    with _decompressed(path) as file, tarfile.open(fileobj=_Headers(file), mode="r:") as members:  # type: ignore[call-overload]
        for member in members:
            if member.isreg() or member.isdir():  # neither links nor devices
                size = check(size + member.size + BLOCK)
                members.extract(member, folder, filter="data")


def _decompressed(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path) if compressed else path.open("rb")  # type: ignore[return-value]


class _Headers:
    """A file that returns no more at once than a header takes, whatever the header claims."""

    def __init__(self, file: IO[bytes]) -> None:
        self.seek, self.tell, self._file = file.seek, file.tell, file

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= HEADER:
            raise InputError(f"a header claims {size} bytes")
        return self._file.read(size)
