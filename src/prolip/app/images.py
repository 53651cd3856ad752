"""Uploaded images: size limits that are checked before decoding, and small JPEG copies."""

from PIL import Image

from prolip.features import BadImage, load_image
from prolip.features.images import Shrink
from prolip.report.thumbnails import to_jpeg

UPLOAD_LIMIT = 32 << 20  # bytes; a photo of 50 megapixels has 10 to 25 MB
PIXEL_LIMIT = 64_000_000  # 200 MB when decoded
LARGE_PIXELS = 25_000_000  # larger images are decoded one at a time: each takes seconds and much memory
THUMBNAIL_SIDE = 320  # pixels of the longer side
PREVIEW_SIDE = 1400


class LargeImage(BadImage):
    """An image above `max_pixels` and within the limit: decode it when no other large one is decoded."""


def thumbnail(data: bytes, side: int = THUMBNAIL_SIDE, max_pixels: int = PIXEL_LIMIT) -> bytes:
    """Make a small JPEG of an image. The page only ever shows these, never the uploaded bytes."""
    return to_jpeg(decode(data, lambda size: max(1, min(size) // side), max_pixels), side, quality=85)


def decode(data: bytes, shrink: Shrink, max_pixels: int = PIXEL_LIMIT) -> Image.Image:
    """Decode an upright RGB image, reduced by the factor that `shrink` returns for its size.

    Raises `BadImage` for anything else than an image within the limits, `LargeImage` above `max_pixels`.
    """

    def checked_shrink(size: tuple[int, int]) -> int:
        pixels = size[0] * size[1]
        if pixels > PIXEL_LIMIT:
            million = PIXEL_LIMIT // 1_000_000
            raise BadImage("", f"it has {size[0]} x {size[1]} pixels, {million} million are the limit")
        if pixels > max_pixels:
            raise LargeImage("", f"it has {size[0]} x {size[1]} pixels")
        return shrink(size)

    return load_image(data, "", near=checked_shrink)
