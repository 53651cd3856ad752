"""Small JPEGs of images inside a page."""

import base64
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from prolip.core import InputError
from prolip.features import load_image
from prolip.features.images import to_jpeg
from prolip.io.environment import cores

SIDE = 320  # pixels of the longer side, enough to judge an image when it is enlarged
MANY = 400  # thumbnails of a page that have this side; more are smaller, so that the page stays as large
QUALITY = 72
MAX_BYTES = 10 << 20  # of all thumbnails of a page


def thumbnails(images: Sequence[Any], chosen: Sequence[int]) -> dict[int, str]:
    """Make data: URLs of thumbnails, by index, in the order of `chosen` until they have `MAX_BYTES`.

    An image that cannot be read has none.
    """
    found: dict[int, str] = {}
    size, side = 0, int(SIDE * min(1.0, MANY / max(1, len(chosen))) ** 0.5)
    with ThreadPoolExecutor(max(2, cores())) as pool:
        for start in range(0, len(chosen), 256):
            part = chosen[start : start + 256]
            for i, url in zip(part, pool.map(lambda i: _data_url(images[i], side), part), strict=True):
                if url is not None:
                    found[i] = url
                    size += len(url)
            if size > MAX_BYTES:
                break
    return found


def _data_url(image: Any, side: int) -> str | None:
    try:
        loaded = load_image(image, near=2 * side)
    except InputError:
        return None
    return "data:image/jpeg;base64," + base64.b64encode(to_jpeg(loaded, side, QUALITY)).decode()
