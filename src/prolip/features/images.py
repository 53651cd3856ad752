"""Any picture to upright 8-bit RGB, or the reason why not.

Only regular files are opened. Large pictures may be shrunk by a whole factor on the way: a JPEG while it is
decoded, which takes a sixth of the time, others by the mean of so many pixels. Pictures whose pixels would
take more memory than `memory.py` allows are refused, and so are those that take more time or reading than
`decoder_limits.py` allows. Animations give their first frame.
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
from threading import Lock
from typing import IO, Any

from PIL import Image, UnidentifiedImageError

from prolip.core.errors import InputError
from prolip.data.files import IMAGE_FORMATS
from prolip.data.lazy import LazyImage
from prolip.features.decoder_limits import (
    FILE_LIMIT,
    HEADER_LIMIT,
    READ_WHOLE,
    SECONDS,
    WHOLE_LIMIT,
    LimitedStream,
    LimitExceeded,
    check_icon,
    check_jpeg,
    check_tags,
    file_size,
)
from prolip.features.memory import PICTURES, VARIABLE
from prolip.features.pixels import from_array, to_rgb, turn
from prolip.io.files import file_state
from prolip.io.reading import Unreadable, open_regular

Shrink = Callable[[tuple[int, int]], int]  # by which whole factor a picture of this size may shrink

_AT_ONCE = 8 << 20  # bytes; a larger file is not read into memory as a whole
_BY_LINES = ("JPEG", "MPO", "PNG", "BMP", "DIB", "PPM", "TIFF", "TGA", "PCX")  # decoded into place
_large_parts = Lock()  # held while a large part of an archive is in memory


class BadImage(InputError):  # noqa: N818 - reads as what it is where it is caught
    """A picture that cannot be read: which, and why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"cannot read image {name}: {reason}; repair or remove it, or go on without it (skip_bad=True)"
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
    shrink: Shrink | None = None if near is None else lambda size: max(1, min(size) // near)
    if isinstance(source, (str, os.PathLike, LazyImage)):
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
    source: bytes | Path | Image.Image | LazyImage
    state: tuple[int, ...] | None = None  # of the file, when its content was read: see `file_state`

    @classmethod
    def open(cls, source: Any, name: str) -> Picture:
        """Read a path, bytes, PIL image or array, or what gives one; a large file does not stay in memory."""
        if isinstance(source, LazyImage):
            if source.size > _AT_ONCE:
                with _large_parts:
                    return cls(name, hashlib.sha256(_loaded(source)).digest(), source)
            source = _loaded(source)
        if isinstance(source, (str, os.PathLike)):
            return _read(Path(source), name)
        if isinstance(source, bytes):
            if len(source) > FILE_LIMIT:
                raise BadImage(name, f"it has more than {FILE_LIMIT >> 30} GB")
            return cls(name, hashlib.sha256(source).digest(), source)
        image = load_image(source, name)
        size = f"pixels {image.width} {image.height};".encode()
        return cls(name, hashlib.sha256(size + image.tobytes()).digest(), image)

    @contextmanager
    def pixels(self, shrink: Shrink | None = None) -> Iterator[tuple[Image.Image, bool]]:
        """The pixels, upright, in RGB, and whether they are fewer than there were.

        The memory that they take counts as taken while they are looked at. `shrink` is called before anything
        is decoded, and may refuse a size.
        """
        if isinstance(self.source, Image.Image):
            factor = shrink(self.source.size) if shrink else 1
            yield self.source.reduce(factor) if factor > 1 else self.source, factor > 1
        elif isinstance(self.source, bytes):
            with _decoded(io.BytesIO(self.source), self.name, shrink) as found:
                yield found
        elif isinstance(self.source, LazyImage):
            with _large_parts:
                content = io.BytesIO(_loaded(self.source))
                with _decoded(content, self.name, shrink) as found:
                    yield found
        else:
            with _open(self.source, self.name) as file:
                if file_state(file.fileno()) != self.state:
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
        return open_regular(path, FILE_LIMIT)
    except Unreadable as error:
        raise BadImage(name, error.reason) from error


def _read(path: Path, name: str) -> Picture:
    with _open(path, name) as file:
        try:
            state = file_state(file.fileno())
            start = file.read(_AT_ONCE + 1)
            if len(start) <= _AT_ONCE:
                return Picture(name, hashlib.sha256(start).digest(), start, state)
            with _reasons(name):  # before a gigabyte is read that is none
                _opened(file)
            digest = hashlib.sha256(start)
            file.seek(len(start))
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
        image, limited, needed = _opened(stream)
        whole = image.size
        factor = shrink(whole) if shrink else 1
        if factor > 1:
            image.draft(image.mode, (image.width // factor, image.height // factor))
        rest = shrink(image.size) if shrink else 1
        needed += _memory(image, rest)
    if needed > PICTURES.limit:
        raise BadImage(
            name,
            f"its {whole[0]} x {whole[1]} pixels take {needed // 10**6} MB to decode, "
            f"{PICTURES.limit // 10**6} are the limit: set {VARIABLE}={-(-needed // 10**6)} for more",
        )
    with PICTURES.hold(needed):
        with _reasons(name):
            limited.allow(4 * needed + HEADER_LIMIT, SECONDS)
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


def _opened(stream: IO[bytes]) -> tuple[Image.Image, LimitedStream, int]:
    """As Pillow's own `open`, but for its limit on pixels, which is the same for all and not for threads.

    Returns the picture, not decoded yet; the stream that it will be read from; and the memory that decoding
    takes beside pixels.
    """
    size, start = file_size(stream), stream.read(16)
    if not start:
        raise ValueError("the file is empty")
    if size > FILE_LIMIT:
        raise LimitExceeded(f"it has more than {FILE_LIMIT >> 30} GB")
    for kind in _formats():
        factory, accept = Image.OPEN[kind]
        with contextlib.suppress(SyntaxError, IndexError, TypeError, struct.error):
            if accept is None or accept(start) is True:
                beside = _check(stream, kind, size)
                stream.seek(0)
                limited = LimitedStream(stream)
                if kind in READ_WHOLE:
                    limited.allow(WHOLE_LIMIT, SECONDS)
                image = factory(limited, "")  # type: ignore[arg-type]
                if image.width == 0 or image.height == 0:
                    raise ValueError(f"it has no pixels (its size is {image.width} x {image.height})")
                return image, limited, int(beside(image))
    raise UnidentifiedImageError


def _check(stream: IO[bytes], kind: str, size: int) -> Callable[[Image.Image], float]:
    """Refuse what a decoder would take too long for; returns how much memory it takes beside pixels."""
    stream.seek(0)
    if kind == "JPEG" and check_jpeg(stream):
        return lambda image: 6 * image.width * image.height  # all of its coefficients are held
    if kind == "TIFF":
        check_tags(stream)
    elif kind in ("ICO", "ICNS"):
        check_icon(stream, kind)
    elif kind in READ_WHOLE:
        if size > WHOLE_LIMIT:
            raise LimitExceeded(f"it has {size >> 20} MB, {WHOLE_LIMIT >> 20} are the limit for this format")
        return lambda image: 2 * size
    return lambda image: 0


def _memory(image: Image.Image, rest: int) -> int:
    """Bytes at most that it takes to decode a picture and to bring it into upright RGB."""
    each: float = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}.get(image.mode, 4)
    if image.format not in _BY_LINES:  # the decoder makes the whole picture before it hands it over
        each += {"WEBP": 12, "JPEG2000": 5 * len(image.getbands()), "AVIF": 6, "HEIF": 8}.get(
            image.format or "", each
        )
    each += 4 / rest**2 * ((image.mode != "RGB" or rest > 1) + (turn(image) is not None))
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
