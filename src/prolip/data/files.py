"""Find image files."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from prolip.core.arguments import as_path
from prolip.core.errors import UsageError
from prolip.io.reading import Source, reading

# Formats that are opened, by Pillow's names. Its others start another program (EPS), are not images (PDF,
# HDF5, MPEG), or are only stubs; an icon may hold an image of any size, which is decoded whatever it claims.
IMAGE_FORMATS: dict[str, tuple[str, ...]] = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif", ".mpo"),
    "PNG": (".png", ".apng"),
    "WEBP": (".webp",),
    "GIF": (".gif",),
    "BMP": (".bmp", ".dib"),
    "TIFF": (".tif", ".tiff"),
    "AVIF": (".avif", ".avifs"),
    "HEIF": (".heic", ".heif", ".hif"),
    "JPEG2000": (".jp2", ".j2k", ".jpx", ".jpf", ".j2c", ".jpc"),
    "PPM": (".ppm", ".pgm", ".pbm", ".pnm", ".pfm"),
    "TGA": (".tga", ".icb", ".vda", ".vst"),
    "PSD": (".psd",),
}
IMAGE_SUFFIXES = frozenset(suffix for suffixes in IMAGE_FORMATS.values() for suffix in suffixes)

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:/")  # one slash, as a path has no two; a drive has one letter

# Folders that archive tools and file servers leave beside the data.
_CLUTTER = frozenset({"__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information"})


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name is ignored."""
    return name.startswith(".") or name in _CLUTTER


def is_image(file: Path) -> bool:
    """Whether a file has the suffix of an image."""
    return file.suffix.lower() in IMAGE_SUFFIXES


def existing(source: Source) -> Path:
    """Return an existing path, with ~ expanded; a URL is an error: nothing is downloaded."""
    path = as_path(source, "a source of images")
    refuse_url(os.fspath(source))
    with reading(path):
        path = path.expanduser()
        path.stat()
    return path


def refuse_url(text: str) -> None:
    """Reject a URL: images are read from this machine."""
    if _URL.match(text):
        raise UsageError(
            f"{text} is a URL, and nothing is downloaded: download it yourself, and name the file"
        )


def listing(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the visible folders and files of a folder, each sorted by name."""
    with reading(folder), os.scandir(folder) as entries:
        visible = sorted((entry.name, entry.is_dir()) for entry in entries if not is_hidden(entry.name))
    folders = [folder / name for name, is_folder in visible if is_folder]
    return folders, [folder / name for name, is_folder in visible if not is_folder]


def images_below(folder: Path) -> Iterator[Path]:
    """Yield every image below a folder, sorted. Links to folders are not followed: they may be circular."""
    folders, files = listing(folder)
    yield from filter(is_image, files)
    for inside in folders:
        if not inside.is_symlink():
            yield from images_below(inside)
