"""Uploaded images: limits that are checked before decoding, features, and small JPEG copies."""

from PIL import Image

from prolip.core.arrays import Array
from prolip.encoders import Encoder
from prolip.encoders.preprocess import Preprocess
from prolip.features.images import load_image, to_jpeg

UPLOAD_LIMIT = 32 << 20  # bytes; a photo of 50 megapixels has 10 to 25 MB
THUMBNAIL_SIDE = 320  # pixels of the longer side
PREVIEW_SIDE = 1400


def prepare(data: bytes, preprocess: Preprocess) -> tuple[bytes, Array]:
    """Decode an upload once, for its thumbnail and for the pixels that an encoder reads."""
    image = decode(data, max(preprocess.sufficient_side, THUMBNAIL_SIDE))
    return to_jpeg(image, THUMBNAIL_SIDE, quality=85), preprocess.centre(image)


def read_pixels(data: bytes, preprocess: Preprocess) -> Array:
    """Decode an upload for an encoder."""
    return preprocess.centre(decode(data, preprocess.sufficient_side))


def encode(data: bytes, encoder: Encoder) -> Array:
    """Return the features [1, width] of an upload."""
    return encoder.encode(read_pixels(data, encoder.preprocess)[None])


def shrink(data: bytes) -> bytes:
    """Make a JPEG to look at. The page only ever shows such copies, never the uploaded bytes."""
    return to_jpeg(decode(data, PREVIEW_SIDE), PREVIEW_SIDE, quality=85)


def decode(data: bytes, near: int) -> Image.Image:
    """Decode an upright RGB image; `near` is a side in pixels that is enough.

    Anything but an image of the usual formats within the limit is an `ImageError`.
    """
    return load_image(data, "", near, upload=True)
