"""Pixels of any kind to upright 8-bit RGB.

Transparency is laid on white. 16-bit greyscale is scaled, where a plain conversion would clip it to white.
CMYK is converted without its colour profile, as the pipelines that CLIP-like models are trained with do it;
Pillow undoes the inversion of Adobe's JPEGs. No step makes another copy of a large picture: a million pixels
at a time are converted, and shrunk where fewer are wanted.
"""

import math
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from prolip.core.errors import InputError
from prolip.data.pixels import channels_last

_STRIP = 1 << 20  # pixels that are converted at a time
_ORIENTATION = 0x0112  # EXIF
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def to_rgb(image: Image.Image, factor: int = 1) -> Image.Image:
    """Upright RGB, shrunk by a whole factor. Conversions go over a million pixels at a time."""
    if image.width == 0 or image.height == 0:
        raise ValueError(f"it has no pixels (its size is {image.width} x {image.height})")
    convert: Callable[[Image.Image], Image.Image] = _strip
    if image.mode.startswith("I") or image.mode == "F":
        span = _span(image)
        convert = lambda strip: Image.fromarray(_grey(np.asarray(strip), span)).convert("RGB")  # noqa: E731
    elif image.mode == "RGB" and not image.has_transparency_data:
        return _upright(image.reduce(factor) if factor > 1 else image, image)
    rows = max(1, _STRIP // (image.width * factor)) * factor
    if image.height <= rows and factor == 1:
        return _upright(convert(image), image)
    made = Image.new("RGB", (-(-image.width // factor), -(-image.height // factor)))
    for top in range(0, image.height, rows):
        strip = convert(image.crop((0, top, image.width, min(image.height, top + rows))))
        made.paste(strip.reduce(factor) if factor > 1 else strip, (0, top // factor))
    return _upright(made, image)


def _strip(image: Image.Image) -> Image.Image:
    """Part of a picture in RGB, transparency laid on white."""
    if image.mode in ("La", "RGBa"):  # premultiplied, which only converts to its own plain kind
        image = image.convert(image.mode.upper())
    if not image.has_transparency_data:
        return image.convert("RGB")
    picture = image.convert("RGBA")
    white = Image.new("RGBA", picture.size, "white")
    return Image.alpha_composite(white, picture).convert("RGB")


def turn(image: Image.Image) -> Image.Transpose | None:
    """How a picture must be turned, as its EXIF orientation says; a broken EXIF block says nothing."""
    info = image.info
    try:
        exif = info.get("exif")
        if exif is None and (profile := info.get("Raw profile type exif")):
            exif = bytes.fromhex("".join(profile.split("\n")[3:]))
        value = _exif_orientation(exif) if exif else getattr(image, "tag_v2", {}).get(_ORIENTATION)
        if value is None and (xmp := info.get("XML:com.adobe.xmp") or info.get("xmp")):
            text = xmp if isinstance(xmp, str) else xmp.decode("latin-1")
            found = re.search(r'tiff:Orientation(?:="|>)([0-9])', text)
            value = found and found[1]
        return None if value is None else _TURNS.get(int(value))
    except Exception:  # parsing a damaged block ends in many ways, and none of them spoils the pixels
        return None


def _exif_orientation(block: bytes) -> int | None:
    """The orientation in the first directory of an EXIF block.

    Pillow reads the values of all tags, and thousands of them may point to the same megabyte.
    """
    block = block.removeprefix(b"Exif\0\0")
    order = "<" if block[:2] == b"II" else ">"
    (offset,) = struct.unpack_from(f"{order}I", block, 4)
    (count,) = struct.unpack_from(f"{order}H", block, offset)
    for k in range(count):
        tag, kind, _, value = struct.unpack_from(f"{order}HHIH", block, offset + 2 + 12 * k)
        if tag == _ORIENTATION:
            return int(value) if kind == 3 else None
    return None


def _upright(picture: Image.Image, origin: Image.Image) -> Image.Image:
    needed = turn(origin)
    return picture if needed is None else picture.transpose(needed)


def _span(image: Image.Image) -> tuple[float, float]:
    """What stands for black and for white in greyscale of more than 8 bits.

    16-bit integers span 0 .. 65535. Wider integers and floats have no agreed range: floats within 0 .. 1 or
    0 .. 255 span that, and anything else is stretched from its least to its greatest value.
    """
    if image.mode.startswith("I;16"):
        return 0.0, 65535.0
    rows = max(1, _STRIP // image.width)
    low, high = math.inf, -math.inf
    for top in range(0, image.height, rows):
        values = np.asarray(image.crop((0, top, image.width, min(image.height, top + rows))))
        if not np.isfinite(values).all():
            raise ValueError("it holds NaN or infinite values")
        low, high = min(low, float(values.min())), max(high, float(values.max()))
    for agreed in (65535.0,) if image.mode == "I" else (1.0, 255.0):
        if low >= 0 and high <= agreed:
            return 0.0, agreed
    return low, high


def _grey(values: np.ndarray, span: tuple[float, float]) -> np.ndarray:
    """Greyscale of more than 8 bits [H, W] to uint8."""
    low, high = span
    return ((values - low) * (255 / max(high - low, 1e-12))).round().astype(np.uint8)


def from_array(source: Any) -> Image.Image:
    """A picture of an array: [H, W], or [H, W, C] or [C, H, W] with 1, 3 or 4 channels."""
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
        values = _by_rows(values, lambda rows: (rows / 257).round())
    elif values.dtype.kind == "f":
        if not (values.min() >= 0 and values.max() <= 1):
            raise InputError(
                f"a float image array must lie in 0 .. 1, got {values.min():.4g} .. {values.max():.4g}; "
                "for 0 .. 255 convert it to uint8"
            )
        values = _by_rows(values, lambda rows: (rows.astype(np.float64) * 255).round())
    elif values.dtype != np.uint8:
        raise InputError(f"an image array must be uint8, uint16, bool or float, got {values.dtype}")
    return Image.fromarray(np.ascontiguousarray(values))


def _by_rows(values: np.ndarray, convert: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """An array [H, ...] as uint8, a few rows at a time."""
    made = np.empty(values.shape, np.uint8)
    rows = max(1, _STRIP // values[0].size)
    for top in range(0, len(values), rows):
        made[top : top + rows] = convert(values[top : top + rows])
    return made
