"""Read any image as upright 8-bit RGB, or report why it cannot be read.

Pillow decodes; a JPEG that is much larger than what a tower takes, at a half, a quarter or an eighth of its
size. Transparency is composited on white. 16-bit greyscale is scaled, where a plain conversion would clip it
to white. CMYK is converted without its colour profile, as in the training pipelines of CLIP-like models. Of
an animation the first frame is read.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import io
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from threading import Lock
from typing import IO, Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from prolip.core.arrays import Array, to_numpy
from prolip.core.errors import InputError, MissingFileError, Parameter
from prolip.data.files import IMAGE_FORMATS
from prolip.data.imageset import LazyImage
from prolip.encoders.preprocess import block_side
from prolip.io.files import file_state
from prolip.io.reading import ReadError, open_regular

FILE_LIMIT = 1 << 30  # bytes
CHANNELS = (1, 3, 4)  # grey, RGB, RGBA
PIXEL_LIMIT = 200_000_000  # what phones and scanners make
# These decoders hold several copies of the whole image: with 200 megapixels, three gigabytes.
COPIED_LIMIT, COPIED = 64_000_000, ("WEBP", "AVIF", "JPEG2000")
# What is read from a network: photos and graphics, of up to 200 MB when decoded.
UPLOAD_FORMATS, UPLOAD_PIXELS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "HEIF"), 64_000_000
SECONDS = 10.0  # of a processor, to decode one image
_LARGE = 16_000_000  # pixels; larger images are decoded one at a time, to bound their memory
_HUGE = 64_000_000  # pixels; larger images do not leave here in full
_large_image = Lock()

# Pillow's own limit, a warning and an error at twice the size, is for the whole process.
if Image.MAX_IMAGE_PIXELS is not None:
    Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS, PIXEL_LIMIT)
warnings.filterwarnings("ignore", module=r"PIL\.")  # of odd metadata: thousands for a single photo


class ImageError(InputError):
    """An image cannot be read; `name` says which, `reason` why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"cannot read image {name}: {reason}; repair or remove it, or skip it (",
            Parameter("skip_bad", True),
            ")",
        )
        self.name = name
        self.reason = reason


class NoImagesError(InputError):
    """None of several images can be read; `bad` has the name and reason of each."""

    def __init__(self, bad: list[tuple[str, str]]) -> None:
        many = "no image" if len(bad) == 1 else f"none of the {len(bad)} images"
        super().__init__(f"{many} can be read; {bad[0][0]}: {bad[0][1]}")
        self.bad = bad


def load_image(
    source: Any,
    name: str | None = None,
    near: int | None = None,
    upload: bool = False,
) -> Image.Image:
    """Load an upright RGB image.

    Parameters
    ----------
    source
        A path, the bytes of a file, a PIL image, an array: [H, W], [H, W, C] or [C, H, W] with 1, 3 or 4
        channels, of uint8, uint16, or floats in 0 .. 1; or a `LazyImage` of one of these.
    name
        The name in errors, by default the path.
    near
        A side in pixels that is enough: a larger image may be shrunk, its shorter side not below that.
    upload
        Whether it comes from a network: only UPLOAD_FORMATS are read, of at most UPLOAD_PIXELS.
    """
    if name is None:
        name = str(source) if isinstance(source, (str, os.PathLike, LazyImage)) else "in memory"
    with open_image(source, name, hashed=False) as opened:
        return opened.decode(near, upload)


@dataclass(frozen=True)
class LazyImages(Sequence[Image.Image]):
    """Paths, PIL images or arrays as a sequence of RGB images, each loaded on access."""

    sources: Sequence[Any]

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: Any) -> Any:
        return load_image(self.sources[index])


@contextmanager
def open_image(source: Any, name: str, hashed: bool = True) -> Iterator[OpenedImage]:
    """Open a path, the bytes of a file, a PIL image, an array or a `LazyImage`; `hashed` computes its key."""
    with _image_errors(name):
        if isinstance(source, LazyImage):
            source = source.load()
        if isinstance(source, (str, os.PathLike)):
            file = open_regular(source, FILE_LIMIT)
        elif isinstance(source, (bytes, bytearray, memoryview)):
            file = io.BytesIO(source)
        else:
            image = to_rgb(
                ImageOps.exif_transpose(source) if isinstance(source, Image.Image) else from_array(source)
            )
            size = f"pixels {image.width} {image.height};".encode()
            key = hashlib.sha256(size + image.tobytes()).digest() if hashed else b""
            yield OpenedImage(name, key, image)
            return
    with file:
        with _image_errors(name):
            on_disk = isinstance(source, (str, os.PathLike))
            state = file_state(file.fileno()) if on_disk and hashed else None
            digest = hashlib.sha256()
            while hashed and (block := file.read(1 << 20)):
                digest.update(block)
        yield OpenedImage(name, digest.digest(), file, state)


@dataclass(frozen=True)
class OpenedImage:
    """An image whose pixels are decoded on demand."""

    name: str
    key: bytes  # SHA-256 of the file's content; of size and pixels where there is no file
    source: IO[bytes] | Image.Image
    state: tuple[int, ...] | None = None  # of the file, when its content was read: see `file_state`

    def decode(self, near: int | None = None, upload: bool = False) -> Image.Image:
        """Decode the pixels to upright RGB; for the arguments see `load_image`."""
        if isinstance(self.source, Image.Image):
            return self.source
        with _image_errors(self.name):
            self.source.seek(0)
            formats = UPLOAD_FORMATS if upload else IMAGE_FORMATS
            available = [kind for kind in formats if kind in _formats()]
            image = Image.open(_TimedFile(self.source), formats=available)
            pixels = image.width * image.height
            limit = COPIED_LIMIT if image.format in COPIED else UPLOAD_PIXELS if upload else PIXEL_LIMIT
            if pixels > limit:
                sides = f"{image.width} x {image.height}"
                raise ValueError(f"it has {sides} pixels, {limit // 10**6} million are the limit")
            enough = 1 if near is None else max(1, min(image.size) // near)
            part = 1 if near is None else block_side(image.size, near)
            if part > 1:
                image.draft(image.mode, (image.width // part, image.height // part))
            huge = pixels > _HUGE
            with _large_image if huge or image.width * image.height > _LARGE else nullcontext():
                try:
                    return _read(image, enough)
                finally:
                    del image
                    if huge:
                        _return_memory()


def _read(image: Image.Image, factor: int) -> Image.Image:
    """Decode an opened image; a huge one is shrunk by a factor."""
    image.load()
    with suppress(Exception):  # a damaged EXIF block: the pixels are still good
        ImageOps.exif_transpose(image, in_place=True)
    if image.width * image.height > _HUGE and image.mode in ("LA", "RGBA"):
        image = image.reduce(factor)  # before there is another copy
    rgb = to_rgb(image)
    return rgb.reduce(factor) if rgb.width * rgb.height > _HUGE else rgb


def _return_memory() -> None:
    """Return free memory to the system; glibc keeps it for the thread that used it."""
    with suppress(OSError, AttributeError, TypeError):  # another C library; Windows
        ctypes.CDLL(None).malloc_trim(0)


class _TimedFile:
    """A file that can be read for a limited time, as a JPEG of a megabyte may have scans for hours."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._end = file, time.thread_time() + SECONDS

    def read(self, size: int = -1) -> bytes:
        if time.thread_time() > self._end:
            raise ValueError("decoding it takes too long: save it as an ordinary JPEG or PNG")
        return self._file.read(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextmanager
def _image_errors(name: str) -> Iterator[None]:
    """Turn any error inside into an `ImageError` with its reason."""
    try:
        yield
    except ImageError:
        raise
    except MissingFileError as error:
        raise ImageError(name, "the file does not exist") from error
    except ReadError as error:
        raise ImageError(name, error.reason) from error
    except UnidentifiedImageError as error:
        raise ImageError(name, "it is damaged, or not an image in a supported format") from error
    except Exception as error:  # Pillow's decoders raise nearly anything on a damaged file
        raise ImageError(name, " ".join(str(error).split())[:200] or type(error).__name__) from error


@functools.cache
def _formats() -> frozenset[str]:
    """Return the formats that this Pillow can open."""
    from pi_heif import register_heif_opener

    Image.init()
    register_heif_opener()
    return frozenset(Image.OPEN)


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert to 8-bit RGB."""
    if not (image.width and image.height):
        raise ValueError(f"it has no pixels (its size is {image.width} x {image.height})")
    if image.mode.startswith("I") or image.mode == "F":
        return Image.fromarray(_grey(image)).convert("RGB")
    if not image.has_transparency_data:
        return image if image.mode == "RGB" else image.convert("RGB")
    rgba = image if image.mode == "RGBA" else image.convert("RGBA")
    rgb = Image.new("RGB", rgba.size, "white")
    rgb.paste(rgba, mask=rgba)
    return rgb


def _grey(image: Image.Image) -> Array:
    """Convert greyscale of more than 8 bits to uint8: integers from 0 .. 65535, floats from their range."""
    values = np.asarray(image).astype(np.float32)
    low, high = (float(values.min()), float(values.max())) if image.mode == "F" else (0.0, 65535.0)
    if not np.isfinite([low, high]).all():
        raise ValueError("it holds NaN or infinite values")
    values -= low  # in place, as the image may be large
    values *= 255 / max(high - low, 1e-12)
    np.clip(values, 0, 255, out=values)
    return np.rint(values, out=values).astype(np.uint8)


def to_jpeg(image: Image.Image, side: int, quality: int) -> bytes:
    """Return an image as a JPEG file of at most this longer side, without metadata."""
    image = image.copy()  # it may be the caller's
    image.thumbnail((side, side))
    payload = io.BytesIO()
    image.save(payload, "JPEG", quality=quality, comment="")  # by default that of the original
    return payload.getvalue()


def from_array(source: Any) -> Image.Image:
    """Make an image of an array [H, W], [H, W, C] or [C, H, W] with 1, 3 or 4 channels."""
    values = channels_last(source)
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[:, :, 0]
    if not (values.ndim == 2 or (values.ndim == 3 and values.shape[2] in (3, 4))) or not values.size:
        raise InputError(
            "an image array must be [H, W], or [H, W, C] or [C, H, W] with 1, 3 or 4 channels, "
            f"got {list(values.shape)}"
        )
    if values.dtype == np.uint16:
        values = np.rint(values / np.float32(257)).astype(np.uint8)
    elif values.dtype.kind == "f":
        if not (values.min() >= 0 and values.max() <= 1):
            raise InputError(
                f"a float image array must lie in 0 .. 1, got {values.min():.4g} .. {values.max():.4g}; "
                "for 0 .. 255 convert it to uint8"
            )
        values = np.rint(values.astype(np.float32) * 255).astype(np.uint8)
    elif values.dtype != np.uint8:
        raise InputError(f"an image array must be uint8, uint16 or float, got {values.dtype}")
    return Image.fromarray(np.ascontiguousarray(values))


def channels_last(source: Any) -> Array:
    """Return the pixels of one image as [H, W], or [H, W, C] with C of 1, 3 or 4.

    The length of an axis tells whether it has the channels; where both ends would do, NumPy arrays have them
    last and torch tensors first, as is usual for each.
    """
    values = to_numpy(source)
    if values.ndim != 3:
        return values
    first, last = values.shape[0] in CHANNELS, values.shape[2] in CHANNELS
    tensor = hasattr(source, "detach")
    return values.transpose(1, 2, 0) if first and (tensor or not last) else values


def is_single_image(source: Any) -> bool | None:
    """Return whether an array is one image rather than a batch; None where it is ambiguous.

    [3, 28, 28] of NumPy may be a colour image, channels first, or three grey ones.
    """
    if source.ndim != 3:
        return bool(source.ndim == 2)
    if hasattr(source, "detach"):
        return source.shape[0] in CHANNELS or source.shape[2] in CHANNELS[1:]
    if source.shape[2] in CHANNELS[1:]:
        return True
    return None if source.shape[0] in CHANNELS else False
