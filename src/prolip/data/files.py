"""Which files are images, and which are there."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from prolip.core.arguments import as_path
from prolip.core.errors import InputError, UsageError
from prolip.data.imageset import LazyImage

# Formats that are opened, by Pillow's names. Pillow knows more; what is left out either starts another
# program (EPS), is no image (PDF, HDF5, MPEG) or is only a stub there.
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

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:/")  # one slash: a path has no two; a drive has one letter

# Folders that archive tools and file servers leave beside the data.
_CLUTTER = frozenset({"__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information"})


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name is passed over."""
    return name.startswith(".") or name in _CLUTTER


def is_image(file: Path | LazyImage) -> bool:
    """Whether a file's suffix is that of an image."""
    return file.suffix.lower() in IMAGE_SUFFIXES


def existing(source: str | os.PathLike[str]) -> Path:
    """The path, with ~ expanded; an error where nothing is there, and for a URL: nothing is downloaded."""
    text = os.fspath(source)
    as_path(source, "a source of images")
    try:
        path = Path(text).expanduser()
        path.stat()
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: the home of a user who is none
        refuse_url(text)
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            raise InputError(f"{text} does not exist") from error
        raise InputError(f"{text} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return path


def refuse_url(text: str) -> None:
    """Refuse what names a place on the network."""
    if _URL.match(text):
        raise UsageError(f"{text} is a URL, and nothing is downloaded: fetch it, and name the file")


def is_file(path: Path) -> bool:
    """Whether a file is there; a name that no file can have is none."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def listing(folder: Path) -> tuple[list[Path], list[Path]]:
    """The visible folders and files of a folder, each sorted by name."""
    folders, files = _names(folder)
    return [folder / name for name in folders], [folder / name for name in files]


def images_below(folder: Path) -> Iterator[Path]:
    """Every image in a folder and the folders in it. Links to folders are not followed: they may go round."""
    waiting = [folder]
    while waiting:
        inside = waiting.pop()
        folders, files = _names(inside, links=False)
        for name in files:
            if name[name.rfind(".") :].lower() in IMAGE_SUFFIXES:
                yield inside / name
        waiting += [inside / name for name in reversed(folders)]


def _names(folder: Path, links: bool = True) -> tuple[list[str], list[str]]:
    """Sorted names of the visible folders and files; without `links`, a link to a folder is neither."""
    folders: list[str] = []
    files: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_hidden(entry.name):
                    continue
                if not _is_folder(entry):
                    files.append(entry.name)
                elif links or not entry.is_symlink():
                    folders.append(entry.name)
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror or error}") from error
    return sorted(folders), sorted(files)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself: opening it says so
        return False
