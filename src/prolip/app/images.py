"""Uploaded images: a size limit that is checked before decoding, and small JPEG copies."""

from contextlib import AbstractContextManager

from PIL import Image

from prolip.core.arrays import Array
from prolip.encoders.preprocess import Preprocess
from prolip.features import ImageError
from prolip.features.images import ImageContent
from prolip.features.pixels import to_jpeg

UPLOAD_LIMIT = 32 << 20  # bytes; a photo of 50 megapixels has 10 to 25 MB
PIXEL_LIMIT = 64_000_000  # 200 MB when decoded
THUMBNAIL_SIDE = 320  # pixels of the longer side
PREVIEW_SIDE = 1400


def prepare(data: bytes, preprocess: Preprocess) -> tuple[bytes, Array]:
    """Decode an upload once, for its thumbnail and for the pixels that an encoder reads."""
    with decode(data) as image:
        return to_jpeg(image, THUMBNAIL_SIDE, quality=85), preprocess.centre(image)


def shrink(data: bytes, side: int) -> bytes:
    """Make a small JPEG of an image. The page only ever shows these, never the uploaded bytes."""
    with decode(data, side) as image:
        return to_jpeg(image, side, quality=85)


def decode(data: bytes, near: int | None = None) -> AbstractContextManager[Image.Image]:
    """Decode an upright RGB image, whose memory is reserved for the time of the context.

    `near` is a side in pixels that is enough. Anything but an image within the limit is a `ImageError`.
    """

    def factor(size: tuple[int, int]) -> int:
        if size[0] * size[1] > PIXEL_LIMIT:
            million = PIXEL_LIMIT // 1_000_000
            raise ImageError("", f"it has {size[0]} x {size[1]} pixels, {million} million are the limit")
        return 1 if near is None else max(1, min(size) // near)

    return ImageContent("", b"", data).pixels(factor)
