"""Convert pixels of any kind to upright 8-bit RGB.

Transparency is composited on white. 16-bit greyscale is scaled, where a plain conversion would clip it to
white. CMYK is converted without its colour profile, as in the training pipelines of CLIP-like models; Pillow
undoes the inversion of Adobe's JPEGs. No step copies a large image: a million pixels at a time are converted,
and shrunk where fewer are wanted.
"""

import io
import math
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from prolip.core.arrays import Array, to_numpy
from prolip.core.errors import InputError

CHANNELS = (1, 3, 4)  # grey, RGB, RGBA

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
    """Convert to upright RGB, shrunk by an integer factor."""
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
    result = Image.new("RGB", (-(-image.width // factor), -(-image.height // factor)))
    for top in range(0, image.height, rows):
        strip = convert(image.crop((0, top, image.width, min(image.height, top + rows))))
        result.paste(strip.reduce(factor) if factor > 1 else strip, (0, top // factor))
    return _upright(result, image)


def to_jpeg(image: Image.Image, side: int, quality: int) -> bytes:
    """Return an image as a JPEG file of at most this longer side, without metadata."""
    image = image.copy()  # it may be the caller's
    image.thumbnail((side, side))
    payload = io.BytesIO()
    image.save(payload, "JPEG", quality=quality, comment="")  # by default that of the original
    return payload.getvalue()


def _strip(image: Image.Image) -> Image.Image:
    """Convert part of an image to RGB, transparency composited on white."""
    if image.mode in ("La", "RGBa"):  # premultiplied, which only converts to its own plain mode
        image = image.convert(image.mode.upper())
    if not image.has_transparency_data:
        return image.convert("RGB")
    rgba = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")


def turn(image: Image.Image) -> Image.Transpose | None:
    """Return how an image must be turned, by its EXIF orientation; a broken EXIF block is ignored."""
    info = image.info
    try:
        exif = info.get("exif")
        if exif is None and (profile := info.get("Raw profile type exif")):
            exif = bytes.fromhex("".join(profile.split("\n")[3:]))
        value = _exif_orientation(exif) if exif else getattr(image, "tag_v2", {}).get(_ORIENTATION)
        if value is None and (xmp := info.get("XML:com.adobe.xmp") or info.get("xmp")):
            text = xmp if isinstance(xmp, str) else xmp.decode("latin-1")
            match = re.search(r'tiff:Orientation(?:="|>)([0-9])', text)
            value = match and match[1]
        return None if value is None else _TURNS.get(int(value))
    except Exception:  # parsing a damaged block fails in many ways, and the pixels are still good
        return None


def _exif_orientation(block: bytes) -> int | None:
    """Read the orientation in the first directory of an EXIF block.

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


def _upright(image: Image.Image, original: Image.Image) -> Image.Image:
    transpose = turn(original)
    return image if transpose is None else image.transpose(transpose)


def _span(image: Image.Image) -> tuple[float, float]:
    """Return the values of black and white in greyscale of more than 8 bits.

    16-bit integers span 0 .. 65535. Wider integers and floats have no agreed range: floats within 0 .. 1 or
    0 .. 255 span that, and anything else is stretched from its minimum to its maximum.
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
    """Convert greyscale of more than 8 bits [H, W] to uint8."""
    low, high = span
    return ((values - low) * (255 / max(high - low, 1e-12))).round().astype(np.uint8)


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
    """Convert an array [H, ...] to uint8, a few rows at a time."""
    result = np.empty(values.shape, np.uint8)
    rows = max(1, _STRIP // values[0].size)
    for top in range(0, len(values), rows):
        result[top : top + rows] = convert(values[top : top + rows])
    return result


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
