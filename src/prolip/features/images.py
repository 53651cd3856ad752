"""Read any image as upright 8-bit RGB, or report why it cannot be read.

Only regular files are opened. An image is decoded in full, so that a path, bytes, a PIL image and an exported
model agree: towers notice the change of a thousandth of the pixels by one level. Huge images (`huge_factor`)
and thumbnails are shrunk by an integer factor on the way: a JPEG while it is decoded, others by averaging
pixels. Images that take more memory, time or reading than `decoder_limits.py` allows are rejected. Of an
animation the first frame is read.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import io
import math
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import IO, Any

from PIL import Image, UnidentifiedImageError

from prolip.core.errors import InputError, MissingFileError
from prolip.data.files import IMAGE_FORMATS
from prolip.data.imageset import LazyImage
from prolip.features.decoder_limits import (
    FILE_LIMIT,
    HEADER_LIMIT,
    IMAGE_MEMORY,
    MEMORY_VARIABLE,
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
from prolip.features.pixels import from_array, to_rgb, turn
from prolip.io.files import file_state
from prolip.io.reading import ReadError, open_regular

Shrink = Callable[[tuple[int, int]], int]  # the integer factor that an image of this size may shrink by

HUGE = 64_000_000  # pixels; larger images are shrunk, to bound their memory
_AT_ONCE = 8 << 20  # bytes; a larger file is not read into memory as a whole
_BY_LINES = ("JPEG", "MPO", "PNG", "BMP", "DIB", "PPM", "TIFF", "TGA", "PCX")  # decoded into place
_large_members = Lock()  # held while a large member of an archive is in memory


class ImageError(InputError):
    """An image cannot be read; `name` says which, `reason` why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"cannot read image {name}: {reason}; repair or remove it, or skip it (skip_bad=True)"
        )
        self.name = name
        self.reason = reason


class MissingImageError(ImageError, FileNotFoundError):
    """The file of an image does not exist."""


class NoImagesError(InputError):
    """None of several images can be read; `bad` has the name and reason of each."""

    def __init__(self, bad: list[tuple[str, str]]) -> None:
        many = "no image" if len(bad) == 1 else f"none of the {len(bad)} images"
        super().__init__(f"{many} can be read; {bad[0][0]}: {bad[0][1]}")
        self.bad = bad


def too_many(bad: list[tuple[str, str]], images: int, fraction: float) -> InputError:
    """Return the error for more unreadable images, with names and reasons, than may be skipped."""
    listed = "; ".join(f"{name}: {reason}" for name, reason in bad[:3])
    return InputError(
        f"{len(bad)} of {images} images cannot be read, more than {100 * fraction:.0f} %: repair or "
        f"remove them ({listed}{'; ...' if len(bad) > 3 else ''})"
    )


def huge_factor(size: tuple[int, int]) -> int:
    """Return the integer factor that an image of this size is shrunk by: 1 up to 64 megapixels."""
    pixels = size[0] * size[1]
    return 1 if pixels <= HUGE else math.isqrt(8 * pixels // HUGE)


def load_image(source: Any, name: str | None = None, near: int | None = None) -> Image.Image:
    """Load an upright RGB image.

    Parameters
    ----------
    source
        A path, the bytes of a file, a PIL image, an array: [H, W], [H, W, C] or [C, H, W] with 1, 3 or 4
        channels, of uint8, uint16, bool, or floats in 0 .. 1; or a `LazyImage` of one of these.
    name
        The name in errors, by default the path.
    near
        A side in pixels that is enough: a larger image is shrunk while it is decoded, not below that.
    """
    shrink = None if near is None else lambda size: max(1, min(size) // near)
    if isinstance(source, (str, os.PathLike, LazyImage)):
        with ImageContent.open(source, name or str(source)).pixels(shrink) as image:
            return image
    if isinstance(source, (bytes, bytearray, memoryview)):
        with _decoded(io.BytesIO(source), name or "in memory", shrink) as image:
            return image
    name = name or "in memory"
    try:
        if isinstance(source, Image.Image):
            source.load()  # here, so that errors of its file are caught
        return to_rgb(source if isinstance(source, Image.Image) else from_array(source))
    except InputError:
        raise
    except (OSError, SyntaxError, ValueError, TypeError) as error:
        raise ImageError(name, str(error)) from error


@dataclass(frozen=True)
class LazyImages(Sequence[Image.Image]):
    """Paths, PIL images or arrays as a sequence of RGB images, each loaded on access."""

    sources: Sequence[Any]

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: Any) -> Any:
        return load_image(self.sources[index])


@dataclass(frozen=True)
class ImageContent:
    """An image by its content, whose pixels are decoded on demand."""

    name: str
    key: bytes  # SHA-256 of the file's content; of size and pixels where there is no file
    source: bytes | Path | Image.Image | LazyImage
    state: tuple[int, ...] | None = None  # of the file, when its content was read: see `file_state`

    @classmethod
    def open(cls, source: Any, name: str) -> ImageContent:
        """Read a path, bytes, PIL image, array or `LazyImage`; a large file does not stay in memory."""
        if isinstance(source, LazyImage):
            if source.size > _AT_ONCE:
                with _large_members:
                    return cls(name, hashlib.sha256(_loaded(source)).digest(), source)
            source = _loaded(source)
        if isinstance(source, (str, os.PathLike)):
            return _read(Path(source), name)
        if isinstance(source, bytes):
            if len(source) > FILE_LIMIT:
                raise ImageError(name, f"it has more than {FILE_LIMIT >> 30} GB")
            return cls(name, hashlib.sha256(source).digest(), source)
        image = load_image(source, name)
        size = f"pixels {image.width} {image.height};".encode()
        return cls(name, hashlib.sha256(size + image.tobytes()).digest(), image)

    @contextmanager
    def pixels(self, shrink: Shrink | None = huge_factor) -> Iterator[Image.Image]:
        """Decode the pixels to upright RGB.

        Their memory is reserved for the time of the context. `shrink` is called before anything is decoded,
        and may reject a size.
        """
        if isinstance(self.source, Image.Image):
            factor = shrink(self.source.size) if shrink else 1
            yield self.source.reduce(factor) if factor > 1 else self.source
        elif isinstance(self.source, bytes):
            with _decoded(io.BytesIO(self.source), self.name, shrink) as found:
                yield found
        elif isinstance(self.source, LazyImage):
            with _large_members:
                content = io.BytesIO(_loaded(self.source))
                with _decoded(content, self.name, shrink) as found:
                    yield found
        else:
            with _open(self.source, self.name) as file:
                if file_state(file.fileno()) != self.state:
                    raise ImageError(self.name, "it changed while it was being read")
                with _decoded(file, self.name, shrink) as found:
                    yield found


def _loaded(image: LazyImage) -> Any:
    """Load a lazy image; any error of its source is a `ImageError`."""
    try:
        return image.load()
    except MemoryError:
        raise
    except Exception as error:
        raise ImageError(image.name, " ".join(str(error).split())[:200] or type(error).__name__) from error


def _open(path: Path, name: str) -> IO[bytes]:
    try:
        return open_regular(path, FILE_LIMIT)
    except MissingFileError as error:
        raise MissingImageError(name, "the file does not exist") from error
    except ReadError as error:
        raise ImageError(name, error.reason) from error


def _read(path: Path, name: str) -> ImageContent:
    with _open(path, name) as file:
        try:
            state = file_state(file.fileno())
            start = file.read(_AT_ONCE + 1)
            if len(start) <= _AT_ONCE:
                return ImageContent(name, hashlib.sha256(start).digest(), start, state)
            with _reasons(name):  # before a gigabyte is read that is not an image
                _opened(file)
            digest = hashlib.sha256(start)
            file.seek(len(start))
            while block := file.read(_AT_ONCE):
                digest.update(block)
        except OSError as error:
            raise ImageError(name, error.strerror or str(error)) from error
    return ImageContent(name, digest.digest(), path, state)


@contextmanager
def _decoded(stream: IO[bytes], name: str, shrink: Shrink | None) -> Iterator[Image.Image]:
    """Decode a stream, shrunk by an integer factor; a JPEG is shrunk while it is decoded, if possible."""
    with _reasons(name):
        image, limited, needed = _opened(stream)
        whole = image.size
        factor = shrink(whole) if shrink else 1
        if factor > 1:
            image.draft(image.mode, (image.width // factor, image.height // factor))
        rest = shrink(image.size) if shrink else 1
        needed += _memory(image, rest)
    if needed > IMAGE_MEMORY.limit:
        raise ImageError(
            name,
            f"its {whole[0]} x {whole[1]} pixels take {needed // 10**6} MB to decode, the limit is "
            f"{IMAGE_MEMORY.limit // 10**6}: set {MEMORY_VARIABLE}={-(-needed // 10**6)} for more",
        )
    with IMAGE_MEMORY.hold(needed):
        with _reasons(name):
            limited.allow(4 * needed + HEADER_LIMIT, SECONDS)
            image.load()
            rgb = to_rgb(image, rest)
        del image
        yield rgb


@contextmanager
def _reasons(name: str) -> Iterator[None]:
    """Turn any error inside into a `ImageError` with its reason."""
    try:
        yield
    except (MemoryError, ImageError):
        raise
    except UnidentifiedImageError as error:
        raise ImageError(name, _unidentified(name)) from error
    except Exception as error:  # Pillow's decoders raise nearly anything on a damaged file
        raise ImageError(name, " ".join(str(error).split()) or type(error).__name__) from error


def _opened(stream: IO[bytes]) -> tuple[Image.Image, LimitedStream, int]:
    """Open as Pillow does, but without its limit on pixels, which is global and not for threads.

    Return the image, not decoded yet; the stream that it is read from; and the memory that decoding takes
    in addition to the pixels.
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
    """Reject what takes a decoder too long; return how much memory it takes in addition to the pixels."""
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
    """Return an upper bound on the bytes needed to decode an image to upright RGB."""
    each: float = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}.get(image.mode, 4)
    if image.format not in _BY_LINES:  # the decoder has a copy of the whole image
        each += {"WEBP": 12, "JPEG2000": 5 * len(image.getbands()), "AVIF": 6, "HEIF": 8}.get(
            image.format or "", each
        )
    each += 4 / rest**2 * ((image.mode != "RGB" or rest > 1) + (turn(image) is not None))
    return int(each * image.width * image.height)


def _unidentified(name: str) -> str:
    if Path(name).suffix.lower() in IMAGE_FORMATS["HEIF"] and "HEIF" not in _formats():
        return "HEIC needs a package (pip install pillow-heif), or convert the image to JPEG"
    return "it is damaged, or not an image in a supported format"


@functools.cache
def _formats() -> tuple[str, ...]:
    """Return the supported formats that this Pillow can open."""
    Image.init()
    with contextlib.suppress(ImportError):
        importlib.import_module("pillow_heif").register_heif_opener()
    return tuple(name for name in IMAGE_FORMATS if name in Image.OPEN)
