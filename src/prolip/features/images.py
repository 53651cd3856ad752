"""Any picture to upright 8-bit RGB, or the reason why not.

Only regular files are opened. Large pictures may be shrunk by a whole factor on the way: a JPEG while it is
decoded, which takes a sixth of the time, others by the mean of so many pixels. Pictures whose pixels would
take more memory than `memory.py` allows are refused. Animations give their first frame.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import io
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from PIL import Image, UnidentifiedImageError

from prolip.core.errors import InputError
from prolip.core.files import file_state
from prolip.core.reading import Unreadable, open_regular
from prolip.data.files import IMAGE_FORMATS
from prolip.data.lazy import LazyImage
from prolip.features.memory import PICTURES, VARIABLE
from prolip.features.pixels import from_array, to_rgb, turn

Shrink = Callable[[tuple[int, int]], int]  # by which whole factor a picture of this size may shrink

_AT_ONCE = 8 << 20  # bytes; a larger file is not read into memory as a whole
_BY_LINES = ("JPEG", "MPO", "PNG", "BMP", "DIB", "PPM", "TIFF", "TGA", "PCX", "SGI")  # decoded into place


class BadImage(InputError):  # noqa: N818 - reads as what it is where it is caught
    """A picture that cannot be read: which, and why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"cannot read image {name}: {reason}; mend or remove it, or go on without it (skip_bad=True)"
        )
        self.name = name
        self.reason = reason


class NoImageLeft(InputError):  # noqa: N818
    """Not one of several pictures can be read; `bad` has each name and reason."""

    def __init__(self, bad: list[tuple[str, str]]) -> None:
        super().__init__(f"none of the {len(bad)} images can be read; {bad[0][0]}: {bad[0][1]}")
        self.bad = bad


def load_image(source: Any, name: str | None = None, near: int | None = None) -> Image.Image:
    """An RGB picture, the right way up.

    Parameters
    ----------
    source
        A path, the bytes of a file, a PIL image, an array: [H, W], [H, W, C] or [C, H, W] with 1, 3 or 4
        channels, of uint8, uint16, bool, or floats in 0 .. 1; or what gives one of these when it is loaded.
    name
        What an error calls it; a path names itself.
    near
        A side, in pixels, that is enough: a larger picture is shrunk while it is decoded, not below that.
    """
    if isinstance(source, LazyImage):
        return load_image(_loaded(source), name or source.name, near)
    shrink: Shrink | None = None if near is None else lambda size: max(1, min(size) // near)
    if isinstance(source, (str, os.PathLike)):
        with Picture.open(source, name or str(source)).pixels(shrink) as (image, _):
            return image
    if isinstance(source, (bytes, bytearray, memoryview)):
        with _decoded(io.BytesIO(source), name or "in memory", shrink) as (image, _):
            return image
    name = name or "in memory"
    try:
        if isinstance(source, Image.Image):
            source.load()  # here, where whatever is wrong with its file is told
        return to_rgb(source if isinstance(source, Image.Image) else from_array(source))
    except InputError:
        raise
    except (OSError, SyntaxError, ValueError, TypeError) as error:
        raise BadImage(name, str(error)) from error


@dataclass(frozen=True)
class Pictures(Sequence[Image.Image]):
    """Paths, PIL images or arrays as RGB pictures, each loaded when it is asked for."""

    sources: Sequence[Any]

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: Any) -> Any:
        return load_image(self.sources[index])


@dataclass(frozen=True)
class Picture:
    """A picture whose content is known, and whose pixels are decoded when they are asked for."""

    name: str
    key: bytes  # SHA-256 of the file's content; of size and pixels where there is no file
    source: bytes | Path | Image.Image
    state: tuple[int, ...] | None = None  # of the file, when its content was read: see `file_state`

    @classmethod
    def open(cls, source: Any, name: str) -> Picture:
        """Read a path, bytes, PIL image or array, or what gives one; a large file is not kept in memory."""
        if isinstance(source, LazyImage):
            source = _loaded(source)
        if isinstance(source, (str, os.PathLike)):
            return _read(Path(source), name)
        if isinstance(source, bytes):
            return cls(name, hashlib.sha256(source).digest(), source)
        image = load_image(source, name)
        size = f"pixels {image.width} {image.height};".encode()
        return cls(name, hashlib.sha256(size + image.tobytes()).digest(), image)

    @contextmanager
    def pixels(self, shrink: Shrink | None = None) -> Iterator[tuple[Image.Image, bool]]:
        """The pixels, upright, in RGB, and whether they are fewer than there were.

        The memory that they take counts as taken while they are looked at.
        """
        if isinstance(self.source, Image.Image):
            factor = shrink(self.source.size) if shrink else 1
            yield self.source.reduce(factor) if factor > 1 else self.source, factor > 1
        elif isinstance(self.source, bytes):
            with _decoded(io.BytesIO(self.source), self.name, shrink) as found:
                yield found
        else:
            with _open(self.source, self.name) as file:
                if file_state(os.fstat(file.fileno())) != self.state:
                    raise BadImage(self.name, "it changed while it was being read")
                with _decoded(file, self.name, shrink) as found:
                    yield found


def _loaded(image: LazyImage) -> Any:
    """What a lazy image gives; whatever its source raises is about this image."""
    try:
        return image.load()
    except MemoryError:
        raise
    except Exception as error:
        raise BadImage(image.name, " ".join(str(error).split())[:200] or type(error).__name__) from error


def _open(path: Path, name: str) -> IO[bytes]:
    try:
        return open_regular(path)
    except Unreadable as error:
        raise BadImage(name, error.reason) from error


def _read(path: Path, name: str) -> Picture:
    with _open(path, name) as file:
        try:
            state = file_state(os.fstat(file.fileno()))
            start = file.read(_AT_ONCE + 1)
            if len(start) <= _AT_ONCE:
                return Picture(name, hashlib.sha256(start).digest(), start, state)
            digest = hashlib.sha256(start)
            while block := file.read(_AT_ONCE):
                digest.update(block)
        except OSError as error:
            raise BadImage(name, error.strerror or str(error)) from error
    return Picture(name, digest.digest(), path, state)


@contextmanager
def _decoded(
    stream: IO[bytes], name: str, shrink: Shrink | None = None
) -> Iterator[tuple[Image.Image, bool]]:
    """What a stream holds, shrunk by a whole factor: of a JPEG, as far as that goes, while it is decoded."""
    with _reasons(name):
        image = _opened(stream)
        if image.width == 0 or image.height == 0:
            raise ValueError(f"it has no pixels (its size is {image.width} x {image.height})")
        whole, factor = image.size, shrink(image.size) if shrink else 1
        if factor > 1:
            image.draft(image.mode, (image.width // factor, image.height // factor))
        rest = shrink(image.size) if shrink else 1
        needed = _memory(image, whole, rest)
    if needed > PICTURES.limit:
        raise BadImage(
            name,
            f"its {whole[0]} x {whole[1]} pixels take {needed // 10**6} MB to decode, "
            f"{PICTURES.limit // 10**6} are the limit: set {VARIABLE}={-(-needed // 10**6)} for more",
        )
    with PICTURES.hold(needed):
        with _reasons(name):
            image.load()
            picture = to_rgb(image, rest)
        del image
        yield picture, factor > 1


@contextmanager
def _reasons(name: str) -> Iterator[None]:
    """Whatever goes wrong inside is a picture that cannot be read, and why."""
    try:
        yield
    except (MemoryError, BadImage):
        raise
    except UnidentifiedImageError as error:
        raise BadImage(name, _unidentified(name)) from error
    except Exception as error:  # Pillow's decoders raise nearly anything on a damaged file
        raise BadImage(name, " ".join(str(error).split()) or type(error).__name__) from error


def _opened(stream: IO[bytes]) -> Image.Image:
    """As Pillow's own `open`, but for its limit on pixels, which is the same for all and not for threads."""
    start = stream.read(16)
    if not start:
        raise ValueError("the file is empty")
    for kind in _formats():
        factory, accept = Image.OPEN[kind]
        with contextlib.suppress(SyntaxError, IndexError, TypeError, struct.error):
            if accept is None or accept(start) is True:
                stream.seek(0)
                return factory(stream, "")
    raise UnidentifiedImageError


def _memory(image: Image.Image, whole: tuple[int, int], rest: int) -> int:
    """Bytes at most that it takes to decode a picture and to bring it into upright RGB."""
    each: float = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}.get(image.mode, 4)
    if image.format not in _BY_LINES:
        each *= 2  # the decoder makes the whole picture before it hands it over
    turned = "exif" in image.info and turn(image) is not None  # without a block, asking would decode a PNG
    each += 4 / rest**2 * ((image.mode != "RGB" or rest > 1) + turned)
    if image.info.get("progressive"):  # all of its coefficients are held
        each += 6 * (whole[0] * whole[1]) / (image.width * image.height)
    return int(each * image.width * image.height)


def _unidentified(name: str) -> str:
    if Path(name).suffix.lower() in IMAGE_FORMATS["HEIF"] and "HEIF" not in _formats():
        return "HEIC pictures need a package (pip install pillow-heif), or convert it to JPEG"
    return "it is damaged, or not a picture in a format that is read"


@functools.cache
def _formats() -> tuple[str, ...]:
    """Those of our formats that this Pillow can open."""
    Image.init()
    with contextlib.suppress(ImportError):
        importlib.import_module("pillow_heif").register_heif_opener()
    return tuple(name for name in IMAGE_FORMATS if name in Image.OPEN)
