"""Small pictures inside a page."""

import base64
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from PIL import Image

from prolip.core import InputError
from prolip.features import load_image
from prolip.io.environment import cores

SIDE = 104  # pixels of the longer side: as wide as a card on the page
QUALITY = 72
MOST = 10 << 20  # bytes of them all


def thumbnails(images: Sequence[Any], chosen: Sequence[int]) -> dict[int, str]:
    """Data addresses of small JPEGs, by the number of the image, in this order until there are enough.

    A picture that cannot be read has none.
    """
    found: dict[int, str] = {}
    size = 0
    with ThreadPoolExecutor(max(2, cores())) as pool:
        for start in range(0, len(chosen), 256):
            part = chosen[start : start + 256]
            for i, address in zip(part, pool.map(lambda i: _address(images[i]), part), strict=True):
                if address is not None:
                    found[i] = address
                    size += len(address)
            if size > MOST:
                break
    return found


def _address(image: Any) -> str | None:
    try:
        picture = load_image(image, near=2 * SIDE)
    except InputError:
        return None
    picture.thumbnail((SIDE, SIDE), Image.Resampling.BICUBIC, reducing_gap=2.0)
    payload = io.BytesIO()
    picture.save(payload, "JPEG", quality=QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(payload.getvalue()).decode()
