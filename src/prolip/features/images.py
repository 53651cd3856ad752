"""Read any image as upright 8-bit RGB, or report why it cannot be read.

Pillow decodes; a JPEG that is much larger than what a tower takes, at a half, a quarter or an eighth of its
size. Transparency is composited on white. 16-bit greyscale is scaled, where a plain conversion would clip it
to white. CMYK is converted without its colour profile, as in the training pipelines of CLIP-like models. Of
an animation the first frame is read.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from pi_heif import register_heif_opener
from PIL import Image, ImageOps, UnidentifiedImageError

from prolip.core.arrays import Array, to_numpy
from prolip.core.errors import InputError, Parameter, UsageError, errors_as
from prolip.data.folders import IMAGE_FORMATS
from prolip.data.imageset import LazyImage
from prolip.encoders.preprocess import block_side
from prolip.io.files import file_state

CHANNELS = (1, 3, 4)  # grey, RGB, RGBA
# What is read from a network: photos and graphics, of up to 200 MB when decoded.
UPLOAD_FORMATS, UPLOAD_PIXELS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "HEIF"), 64_000_000
SECONDS = 10.0  # of a processor, to decode one image
_LARGE = 64_000_000  # pixels; larger images are decoded one at a time, to bound their memory
_large_image = Lock()

# Pillow's limit: larger images are a warning, and those of twice as many pixels an error.
if Image.MAX_IMAGE_PIXELS is not None:
    Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS, 100_000_000)  # phones make twice as many
warnings.filterwarnings("ignore", module=r"PIL\.")  # of odd metadata: thousands for a single photo
register_heif_opener()
Image.init()


class ImageError(InputError):
    """An image cannot be read; `name` says which, `reason` why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"cannot read image {name}: {reason}; repair or remove it, or skip it with ",
            Parameter("skip_bad", True),
        )
        self.name = name
        self.reason = reason


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
    return open_image(source, name).decode(near, upload)


@dataclass(frozen=True)
class LazyImages(Sequence[Image.Image]):
    """Paths, PIL images or arrays as a sequence of RGB images, each loaded on access."""

    sources: Sequence[Any]

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: Any) -> Any:
        return load_image(self.sources[index])


def open_image(source: Any, name: str) -> OpenedImage:
    """Open a path, the bytes of a file, a PIL image, an array or a `LazyImage`."""
    with _image_errors(name):
        if isinstance(source, LazyImage):
            return replace(open_image(source.load(), name), state=None)
        if isinstance(source, (str, os.PathLike)):
            state = file_state(source)
            return OpenedImage(name, Path(source).read_bytes(), state)
        if isinstance(source, (bytes, bytearray, memoryview)):
            return OpenedImage(name, bytes(source))
        image = ImageOps.exif_transpose(source) if isinstance(source, Image.Image) else from_array(source)
        return OpenedImage(name, to_rgb(image))


@dataclass(frozen=True)
class OpenedImage:
    """An image whose pixels are decoded on demand."""

    name: str
    content: bytes | Image.Image
    state: tuple[int, ...] | None = None  # of the file, when its content was read: see `file_state`

    @cached_property
    def key(self) -> bytes:
        """SHA-256 of the file's content; of size and pixels where there is no file."""
        if isinstance(self.content, bytes):
            return hashlib.sha256(self.content).digest()
        size = f"pixels {self.content.width} {self.content.height};".encode()
        return hashlib.sha256(size + self.content.tobytes()).digest()

    def decode(self, near: int | None = None, upload: bool = False) -> Image.Image:
        """Decode the pixels to upright RGB; for the arguments see `load_image`."""
        if isinstance(self.content, Image.Image):
            return self.content
        with _image_errors(self.name):
            formats = [kind for kind in (UPLOAD_FORMATS if upload else IMAGE_FORMATS) if kind in Image.OPEN]
            image = Image.open(_TimedFile(self.content), formats=formats)
            if upload and image.width * image.height > UPLOAD_PIXELS:
                sides = f"{image.width} x {image.height}"
                raise ValueError(f"it has {sides} pixels, {UPLOAD_PIXELS // 10**6} million are the limit")
            part = 1 if near is None else block_side(image.size, near)
            image.draft(image.mode, (image.width // part, image.height // part))
            with _large_image if image.width * image.height > _LARGE else nullcontext():
                image.load()
                with suppress(Exception):  # a damaged EXIF block: the pixels are still good
                    ImageOps.exif_transpose(image, in_place=True)
                rgb = to_rgb(image)
                return rgb if near is None else rgb.reduce(block_side(rgb.size, near))


class _TimedFile(io.BytesIO):
    """A file that can be read for a limited time, as a JPEG of a megabyte may have scans for hours."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self._end = time.thread_time() + SECONDS

    def read(self, size: int | None = -1) -> bytes:
        if time.thread_time() > self._end:
            raise ValueError("decoding it takes too long: save it as an ordinary JPEG or PNG")
        return super().read(size)


def _image_errors(name: str) -> AbstractContextManager[None]:
    """Turn any error inside into an `ImageError` with its reason."""
    return errors_as(lambda error: ImageError(name, _reason(error)), keep=ImageError)


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "it is damaged, or not an image in a supported format"
    return getattr(error, "strerror", None) or " ".join(str(error).split())[:200] or type(error).__name__


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
    scaled: Array = np.rint((values - low) * (255 / max(high - low, 1e-12)))
    return scaled.clip(0, 255).astype(np.uint8)


def to_jpeg(image: Image.Image, side: int, quality: int) -> bytes:
    """Return an image as a JPEG file of at most this longer side, without metadata."""
    image = image.copy()  # it may be the caller's
    image.thumbnail((side, side))
    payload = io.BytesIO()
    image.save(payload, "JPEG", quality=quality, comment="")  # by default that of the original
    return payload.getvalue()


def from_array(source: Any) -> Image.Image:
    """Make an image of an array [H, W], [H, W, C] or [C, H, W] with 1, 3 or 4 channels.

    The length of an axis tells whether it has the channels; where both ends would do, NumPy arrays have them
    last and torch tensors first, as is usual for each.
    """
    values = to_numpy(source)
    tensor = hasattr(source, "detach")
    if values.ndim == 3 and values.shape[0] in CHANNELS and (tensor or values.shape[2] not in CHANNELS):
        values = values.transpose(1, 2, 0)
    if not (values.ndim == 2 or (values.ndim == 3 and values.shape[2] in CHANNELS)) or not values.size:
        raise InputError(
            "an image array must be [H, W], or [H, W, C] or [C, H, W] with 1, 3 or 4 channels, "
            f"got {list(values.shape)}"
        )
    if values.shape[2:] == (1,):
        values = values[:, :, 0]
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


def is_single_image(source: Any) -> bool:
    """Return whether an array is one image rather than a batch."""
    if source.ndim != 3:
        return bool(source.ndim == 2)
    first, last = source.shape[0] in CHANNELS, source.shape[2] in CHANNELS[1:]
    if first and not last and not hasattr(source, "detach"):
        raise UsageError(
            f"an array of shape {list(source.shape)} is one image, channels first, or several grey "
            "ones: put it into a list if it is one; add an axis at its end if it is several"
        )
    return first or last
