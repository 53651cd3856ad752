"""Which files are images, and which are there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from prolip.core.errors import InputError

# Formats that are opened, by Pillow's names. Pillow knows more; what is left out either starts another
# program (EPS), is no picture (PDF, HDF5, MPEG) or is only a stub there.
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
    "ICO": (".ico",),
    "ICNS": (".icns",),
    "PCX": (".pcx",),
    "PSD": (".psd",),
    "QOI": (".qoi",),
    "SGI": (".sgi", ".bw", ".rgb", ".rgba"),
    "DDS": (".dds",),
}
IMAGE_SUFFIXES = frozenset(suffix for suffixes in IMAGE_FORMATS.values() for suffix in suffixes)

# Folders that archive tools and file servers leave beside the data.
_CLUTTER = frozenset({"__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information"})


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name is passed over."""
    return name.startswith(".") or name in _CLUTTER


def is_image(path: Path) -> bool:
    """Whether a file's suffix is that of an image."""
    return path.suffix.lower() in IMAGE_SUFFIXES


def existing(source: str | os.PathLike[str]) -> Path:
    """The path, with ~ expanded; an error where nothing is there."""
    path = Path(source).expanduser()
    if not path.exists():
        raise InputError(f"{path} does not exist")
    return path


def listing(folder: Path) -> tuple[list[Path], list[Path]]:
    """The visible folders and files of a folder, each sorted by name."""
    folders: list[Path] = []
    files: list[Path] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not is_hidden(entry.name):
                    (folders if entry.is_dir() else files).append(folder / entry.name)
    except PermissionError as error:
        raise InputError(f"{folder} cannot be read: permission denied") from error
    return sorted(folders), sorted(files)


def images_below(folder: Path) -> Iterator[Path]:
    """Every image in a folder and the folders in it. Links to folders are not followed: they may go round."""
    folders, files = listing(folder)
    yield from filter(is_image, files)
    for inner in folders:
        if not inner.is_symlink():
            yield from images_below(inner)


def list_images(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Image files to predict: files as they are named, folders with all that is in them, in that order."""
    named = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    found: list[Path] = []
    for path in map(existing, named):
        if path.is_dir():
            inside = list(images_below(path))
            if not inside:
                raise InputError(f"no images in {path} (suffixes like .jpg, .png, .webp are looked for)")
            found += inside
        elif path.suffix and not is_image(path):
            raise InputError(f"{path} is not an image: its suffix is {path.suffix!r}")
        else:
            found.append(path)
    if not found:
        raise InputError("no images were named")
    return found
