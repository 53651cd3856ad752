"""Find image files."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from prolip.core.arguments import as_path
from prolip.core.errors import InputError, MissingFileError, UsageError

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


def existing(source: str | os.PathLike[str]) -> Path:
    """Return an existing path, with ~ expanded; a URL is an error: nothing is downloaded."""
    text = os.fspath(source)
    as_path(source, "a source of images")
    try:
        path = Path(text).expanduser()
        path.stat()
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: the home of an unknown user
        refuse_url(text)
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            raise MissingFileError(f"{text} does not exist") from error
        raise InputError(f"{text} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return path


def refuse_url(text: str) -> None:
    """Reject a URL: images are read from this machine."""
    if _URL.match(text):
        raise UsageError(
            f"{text} is a URL, and nothing is downloaded: download it yourself, and name the file"
        )


def is_file(path: Path) -> bool:
    """Whether this is a regular file; False for a name that no file can have."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def listing(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the visible folders and files of a folder, each sorted by name."""
    try:
        with os.scandir(folder) as entries:
            visible = sorted((entry.name, entry.is_dir()) for entry in entries if not is_hidden(entry.name))
    except OSError as error:
        raise _unreadable(error, folder) from error
    folders = [folder / name for name, is_folder in visible if is_folder]
    return folders, [folder / name for name, is_folder in visible if not is_folder]


def images_below(folder: Path) -> Iterator[Path]:
    """Yield every image below a folder, sorted. Links to folders are not followed: they may be circular."""

    def fail(error: OSError) -> None:
        raise _unreadable(error, folder) from error

    for place, folders, files in os.walk(folder, onerror=fail):
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        for name in sorted(files):
            if not is_hidden(name) and name[name.rfind(".") :].lower() in IMAGE_SUFFIXES:
                yield Path(place, name)


def _unreadable(error: OSError, folder: Path) -> InputError:
    return InputError(f"{error.filename or folder} cannot be read: {error.strerror or error}")
