"""Small JPEGs of images inside a page."""

import base64
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

from prolip.core import InputError
from prolip.features import load_image
from prolip.features.images import to_jpeg
from prolip.io.environment import cores

SIDE = 320  # pixels of the longer side, enough to judge an image when it is enlarged
QUALITY = 72
MOST = 500  # thumbnails of a page, which have some 10 MB


def thumbnails(images: Sequence[Any], chosen: Iterable[int]) -> dict[int, str]:
    """Make data: URLs of thumbnails, by index, of the first `MOST` that are chosen.

    An image that cannot be read has none.
    """
    first = list(islice(dict.fromkeys(chosen), MOST))
    with ThreadPoolExecutor(max(2, cores())) as pool:
        urls = zip(first, pool.map(lambda i: _data_url(images[i]), first), strict=True)
        return {i: url for i, url in urls if url is not None}


def _data_url(image: Any) -> str | None:
    try:
        loaded = load_image(image, near=2 * SIDE)
    except InputError:
        return None
    return "data:image/jpeg;base64," + base64.b64encode(to_jpeg(loaded, SIDE, QUALITY)).decode()
