"""Pictures that come over the network: checked by their headers before they are decoded, and made small."""

import io
import warnings
from contextlib import suppress

from PIL import Image

from prolip.features import BadImage, load_image

UPLOAD_LIMIT = 32 << 20  # bytes; a photo of 50 megapixels has 10 to 25 MB
PIXEL_LIMIT = 64_000_000  # 200 MB when decoded
THUMBNAIL = 320  # pixels of the longer side
LARGE = 1400


def thumbnail(data: bytes, side: int = THUMBNAIL) -> bytes:
    """A small JPEG of a picture, or a `BadImage`; what pages get to see is always drawn anew by this."""
    small = decode(data, side)
    small.thumbnail((side, side))
    drawn = io.BytesIO()
    small.save(drawn, "JPEG", quality=85)
    return drawn.getvalue()


def decode(data: bytes, near: int | None = None) -> Image.Image:
    """An upright RGB picture within the limits, or a `BadImage`; a side of `near` pixels is enough."""
    width, height = _size(data)
    if width * height > PIXEL_LIMIT:
        million = PIXEL_LIMIT // 1_000_000
        raise BadImage("", f"it has {width} x {height} pixels, {million} million are the limit")
    return load_image(data, "", near)


def _size(data: bytes) -> tuple[int, int]:
    """What a picture's header claims; nothing where it cannot be read, of which `load_image` tells why."""
    with warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")  # the limit on pixels is ours
        with Image.open(io.BytesIO(data)) as image:
            return image.size
    return 0, 0
