"""Labels from the keywords of images: in their XMP sidecars, and embedded in them as XMP or IPTC.

Photo managers write keywords: digiKam and darktable beside a file, as photo.jpg.xmp, Lightroom as photo.xmp
or into it. A label is the one keyword of an image; of several, the one that is among given names.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from prolip.core.errors import InputError
from prolip.core.names import normalize_name
from prolip.data.files import existing, images_below, is_image
from prolip.data.imageset import ImageSet
from prolip.io.progress import counted
from prolip.io.reading import Unreadable, open_regular, read_bytes
from prolip.io.xmp import LIMIT, BadPacketError, keywords

_IPTC_KEYWORDS = (2, 25)
_XMP = b"http://ns.adobe.com/xap/1.0/\0"


class KeywordWarning(UserWarning):
    """Images are left out, because their keywords do not say of which class they are."""


def read_keywords(source: str | Path, names: Sequence[str] = ()) -> ImageSet:
    """Read the images of a folder, with their keywords as labels; `names` are the keywords that count.

    Images with none of these keywords, or with several, are left out, and their number is a warning.
    Keywords that `predict --tag` added do not count.
    """
    root = existing(source)
    photos = list(images_below(root)) if root.is_dir() else [root]
    wanted = {normalize_name(name) for name in names}
    images: list[Path] = []
    labels: list[str] = []
    counts: Counter[int] = Counter()
    for photo in filter(is_image, photos):
        found = [word for word in keywords_of(photo) if not wanted or word in wanted]
        counts[min(len(found), 2)] += 1
        if len(found) == 1:
            images.append(photo)
            labels.append(found[0])
    if counts[0] or counts[2]:
        warnings.warn(
            f"{counted(counts[0])} without a keyword and {counts[2]} with several are left out; "
            "keywords:NAME,NAME names those that are classes",
            KeywordWarning,
            stacklevel=2,
        )
    if not images:
        raise InputError(f"no image in {root} has one keyword{' of these' if wanted else ''}")
    classes = sorted(set(labels))
    return ImageSet(images, [classes.index(label) for label in labels], classes, root)


def keywords_of(photo: Path) -> list[str]:
    """Return the keywords of an image and of its sidecar, each once."""
    found: list[str] = []
    if (sidecar := find_sidecar(photo)) is not None:
        with suppress(Unreadable, BadPacketError):
            found += keywords(read_bytes(sidecar, LIMIT))
    found += _embedded(photo)
    return list(dict.fromkeys(normalize_name(word) for word in found if word.strip()))


def find_sidecar(photo: Path) -> Path | None:
    """Return the XMP sidecar of an image: photo.jpg.xmp, or else photo.xmp."""
    places = photo.with_name(f"{photo.name}.xmp"), photo.with_suffix(".xmp")
    return next((place for place in places if place.is_file()), None)


def _embedded(photo: Path) -> list[str]:
    """Return the keywords in a file, of which only the header is read."""
    from PIL import Image, IptcImagePlugin

    found: list[str] = []
    try:
        with warnings.catch_warnings(), open_regular(photo) as file, Image.open(file) as image:
            warnings.simplefilter("ignore")  # a damaged one is reported when it is encoded
            segments = [data for kind, data in getattr(image, "applist", ()) if kind == "APP1"]  # of a JPEG
            embedded = [data.removeprefix(_XMP) for data in segments if data.startswith(_XMP)]
            packet = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp") or b"".join(embedded[:1])
            words: Any = (IptcImagePlugin.getiptcinfo(image) or {}).get(_IPTC_KEYWORDS, [])
    except Exception:  # of whatever decoder
        return found
    if packet:
        with suppress(BadPacketError):
            found += keywords(packet if isinstance(packet, bytes) else str(packet).encode())
    for word in words if isinstance(words, list) else [words]:
        found.append(word.decode("utf-8", "replace"))
    return found
