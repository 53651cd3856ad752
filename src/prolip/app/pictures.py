"""Pictures that come over the network: checked by their headers before they are decoded, and made small."""

from __future__ import annotations

import io
import warnings
from functools import cache

from PIL import Image, UnidentifiedImageError

from prolip.data.files import IMAGE_FORMATS
from prolip.features import BadImage, load_image

UPLOAD_LIMIT = 32 << 20  # bytes; a photo of 50 megapixels has 10 to 25 MB
PIXEL_LIMIT = 64_000_000  # 200 MB when decoded
THUMBNAIL = 320  # pixels of the longer side
LARGE = 1400


def thumbnail(data: bytes, side: int = THUMBNAIL) -> bytes:
    """A small JPEG of a picture, or a `BadImage`; what pages get to see is always drawn anew by this.

    A JPEG is decoded at a fraction of its size, which takes a fifth of the time.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the limit on pixels is ours
            with Image.open(io.BytesIO(data), formats=_formats()) as image:
                check_pixels(image)
                image.draft(None, (side, side))
                small = load_image(image)
    except BadImage:
        raise
    except (UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise BadImage("", "it is not a picture that can be read") from error
    except MemoryError:
        raise
    except Exception as error:  # Pillow's decoders raise nearly anything on a damaged file
        raise BadImage("", " ".join(str(error).split())[:200] or type(error).__name__) from error
    small.thumbnail((side, side))
    drawn = io.BytesIO()
    small.save(drawn, "JPEG", quality=85)
    return drawn.getvalue()


def decode(data: bytes) -> Image.Image:
    """An upright RGB picture within the limits, or a `BadImage`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=_formats()) as image:
                check_pixels(image)
            return load_image(data, "")
    except BadImage:
        raise
    except MemoryError:
        raise
    except Exception as error:
        raise BadImage("", "it is not a picture that can be read") from error


def check_pixels(image: Image.Image) -> None:
    """Refuse a picture that claims more pixels than are decoded here."""
    if image.width * image.height > PIXEL_LIMIT:
        million = PIXEL_LIMIT // 1_000_000
        raise BadImage("", f"it has {image.width} x {image.height} pixels, {million} million are the limit")


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in IMAGE_FORMATS if name in Image.OPEN)
