"""Pictures that come over the network: checked by their headers before they are decoded, and made small."""

import io

from PIL import Image

from prolip.features import BadImage
from prolip.features.images import ImageContent, Shrink

UPLOAD_LIMIT = 32 << 20  # bytes; a photo of 50 megapixels has 10 to 25 MB
PIXEL_LIMIT = 64_000_000  # 200 MB when decoded
LARGE_PIXELS = 25_000_000  # more than this is decoded one at a time: it may take seconds, and most memory
THUMBNAIL = 320  # pixels of the longer side
LARGE = 1400


class LargePicture(BadImage):
    """A picture that has to wait for its turn."""


def thumbnail(data: bytes, side: int = THUMBNAIL, max_pixels: int = PIXEL_LIMIT) -> bytes:
    """A small JPEG of a picture, or a `BadImage`; what pages get to see is always drawn anew by this."""
    small = decode(data, lambda size: max(1, min(size) // side), max_pixels)
    small.thumbnail((side, side))
    drawn = io.BytesIO()
    small.save(drawn, "JPEG", quality=85)
    return drawn.getvalue()


def decode(data: bytes, shrink: Shrink, max_pixels: int = PIXEL_LIMIT) -> Image.Image:
    """An upright RGB picture within the limits, shrunk as far as it may be, or a `BadImage`.

    One of more than `max_pixels` that is within the limits is a `LargePicture`.
    """

    def within(size: tuple[int, int]) -> int:
        if size[0] * size[1] > PIXEL_LIMIT:
            million = PIXEL_LIMIT // 1_000_000
            raise BadImage("", f"it has {size[0]} x {size[1]} pixels, {million} million are the limit")
        if size[0] * size[1] > max_pixels:
            raise LargePicture("", f"it has {size[0]} x {size[1]} pixels")
        return shrink(size)

    with ImageContent.open(data, "").pixels(within) as (image, _):
        return image
