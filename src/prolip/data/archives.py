"""Unpack a .zip, .tar or .tar.gz into a temporary folder, which lives as long as its images are in use.

An archive may come from anyone: it has a limit of bytes, and no member is written outside the folder.
"""

import gzip
import io
import shutil
import tarfile
import tempfile
import weakref
import zipfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from prolip.core.errors import InputError
from prolip.data.folders import listing
from prolip.data.imageset import LazyImage
from prolip.io.reading import ReadError, reading

# What an archive may unpack to: 4 GB, or 20 times its size. Images are compressed already.
UNPACKED, RATIO = 4 << 30, 20
HEADER = 1 << 20  # bytes of a header in a .tar


class Archive:
    """An archive and the temporary folder of its files, which is removed with the last image of it.

    The folder ends in the name of the archive, for messages.
    """

    def __init__(self, path: Path) -> None:
        temporary = tempfile.mkdtemp(prefix="prolip-")
        weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)
        self.path, self.folder = path, Path(temporary).resolve() / path.name
        self.folder.mkdir()
        with reading(path):
            _unpack(path, self.folder)

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
        content = image.load() if isinstance(image, LazyImage) else image
        if isinstance(content, Path) and not content.resolve().is_relative_to(self.folder):
            raise ReadError(self.path, f"a table in it names {content}, which is outside of it")
        return content


def _unpack(path: Path, folder: Path) -> None:
    left = max(UNPACKED, RATIO * path.stat().st_size)

    def check(size: int) -> None:
        nonlocal left
        left -= size
        if left < 0:
            raise ReadError(path, "it unpacks to more than 4 GB, and 20 times its size: unpack it yourself")

    if path.name.lower().endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                check(entry.file_size)
                archive.extract(entry, folder)
        return
    compressed = path.name.lower().endswith("gz")
    content: Any = gzip.open(path) if compressed else path.open("rb")  # noqa: SIM115
    with content, _Headers(content) as file, tarfile.open(fileobj=file, mode="r:") as members:
        for member in members:
            if member.isreg() or member.isdir():  # neither links nor devices
                check(member.size)
                members.extract(member, folder, filter="data")


class _Headers(io.BufferedReader):
    """A tar whose headers, which are in memory as a whole, have a limit whatever they claim."""

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size > HEADER:
            raise InputError(f"a header claims {size} bytes")
        return super().read(size)
