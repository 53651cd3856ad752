"""Any picture to upright 8-bit RGB.

Transparency is laid on white. 16-bit greyscale is scaled, where a plain conversion would clip it to white.
CMYK is converted without its colour profile, as the pipelines that CLIP-like models are trained with do it;
Pillow undoes the inversion of Adobe's JPEGs. Animations give their first frame.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from prolip.core.errors import InputError
from prolip.data.files import IMAGE_FORMATS
from prolip.data.lazy import LazyImage
from prolip.data.pixels import channels_last

_ORIENTATION = 0x0112  # EXIF
_TURN = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


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
        A side, in pixels, that is enough: a large JPEG is then decoded at a fraction of its size, not below
        that, in a fraction of the time.
    """
    if isinstance(source, LazyImage):
        return load_image(_loaded(source), name or source.name)
    if isinstance(source, (str, os.PathLike)):
        return load_image(_read(source), name or str(source), near)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _decode(bytes(source), name or "in memory", near)
    name = name or "in memory"
    try:
        return _rgb(source if isinstance(source, Image.Image) else _from_array(source))
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
    """A picture whose content is known, and whose pixels are decoded when they are asked for.

    Attributes
    ----------
    key
        SHA-256 of the file's content; of size and pixels where there is no file.
    """

    name: str
    key: bytes
    source: bytes | Image.Image

    @classmethod
    def open(cls, source: Any, name: str) -> Picture:
        """Read a path, bytes, PIL image or array, or what gives one."""
        if isinstance(source, LazyImage):
            source = _loaded(source)
        if isinstance(source, (str, os.PathLike)):
            source = _read(source)
        if isinstance(source, bytes):
            return cls(name, hashlib.sha256(source).digest(), source)
        image = load_image(source, name)
        size = f"pixels {image.width} {image.height};".encode()
        return cls(name, hashlib.sha256(size + image.tobytes()).digest(), image)

    def load(self) -> Image.Image:
        """The pixels, upright, in RGB."""
        return self.source if isinstance(self.source, Image.Image) else load_image(self.source, self.name)


def _loaded(image: LazyImage) -> Any:
    """What a lazy image gives; whatever its source raises is about this image."""
    try:
        return image.load()
    except MemoryError:
        raise
    except Exception as error:
        raise BadImage(image.name, " ".join(str(error).split())[:200] or type(error).__name__) from error


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise BadImage(str(path), getattr(error, "strerror", None) or str(error)) from error


def _decode(data: bytes, name: str, near: int | None = None) -> Image.Image:
    if not data:
        raise BadImage(name, "the file is empty")
    try:
        with Image.open(io.BytesIO(data), formats=_formats()) as image:
            if near is not None:
                image.draft(None, (near, near))
            image.load()
            return _rgb(image)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BadImage(name, "it claims more pixels than is safe to decode") from error
    except UnidentifiedImageError as error:
        raise BadImage(name, _unidentified(name)) from error
    except MemoryError:
        raise
    except Exception as error:  # Pillow's decoders raise nearly anything on a damaged file
        raise BadImage(name, " ".join(str(error).split()) or type(error).__name__) from error


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


def _rgb(image: Image.Image) -> Image.Image:
    image = _upright(image)
    if image.width == 0 or image.height == 0:
        raise ValueError(f"it has no pixels (its size is {image.width} x {image.height})")
    if image.mode.startswith("I") or image.mode == "F":
        image = Image.fromarray(_grey(np.asarray(image)))
    if image.mode in ("La", "RGBa"):  # premultiplied, which only converts to its own plain kind
        image = image.convert(image.mode.upper())
    if not image.has_transparency_data:
        return image.convert("RGB")
    picture = image.convert("RGBA")
    white = Image.new("RGBA", picture.size, "white")
    return Image.alpha_composite(white, picture).convert("RGB")


def _upright(image: Image.Image) -> Image.Image:
    """The picture as its EXIF orientation says; a broken EXIF block says nothing."""
    try:
        orientation = image.getexif().get(_ORIENTATION)
    except Exception:  # parsing a damaged block ends in many ways, and none of them spoils the pixels
        return image
    return image.transpose(_TURN[orientation]) if orientation in _TURN else image


def _grey(values: np.ndarray) -> np.ndarray:
    """Greyscale of more than 8 bits [H, W] to uint8.

    16-bit integers span 0 .. 65535. Wider integers and floats have no agreed range: floats within 0 .. 1 or
    0 .. 255 span that, and anything else is stretched from its least to its greatest value.
    """
    if not np.isfinite(values).all():
        raise ValueError("it holds NaN or infinite values")
    low, high = float(values.min()), float(values.max())
    for agreed in (65535.0,) if values.dtype.kind in "iu" else (1.0, 255.0):
        if low >= 0 and high <= agreed:
            low, high = 0.0, agreed
            break
    return ((values - low) * (255 / max(high - low, 1e-12))).round().astype(np.uint8)


def _from_array(source: Any) -> Image.Image:
    values = channels_last(source)
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[:, :, 0]
    if not (values.ndim == 2 or (values.ndim == 3 and values.shape[2] in (3, 4))) or not values.size:
        raise InputError(
            "an image array must be [H, W], or [H, W, C] or [C, H, W] with 1, 3 or 4 channels, "
            f"got {list(values.shape)}"
        )
    if values.dtype == np.bool_:
        values = values.astype(np.uint8) * 255
    elif values.dtype == np.uint16:
        values = (values / 257).round().astype(np.uint8)
    elif values.dtype.kind == "f":
        if not (values.min() >= 0 and values.max() <= 1):
            raise InputError(
                f"a float image array must lie in 0 .. 1, got {values.min():.4g} .. {values.max():.4g}; "
                "for 0 .. 255 convert it to uint8"
            )
        values = (values.astype(np.float64) * 255).round().astype(np.uint8)
    elif values.dtype != np.uint8:
        raise InputError(f"an image array must be uint8, uint16, bool or float, got {values.dtype}")
    return Image.fromarray(np.ascontiguousarray(values))
