"""Limits on the memory, time and reading of image decoders, and checks of headers that ask for too much work.

All images that are decoded in this process, on any number of threads, share one `MemoryBudget`.

Pillow reads every image through a `LimitedStream`, which stops a decoder that reads more than an image of its
size can need, or that has taken too much time. A decoder reads nothing while it works on what it has, so some
headers are checked first: a JPEG with many scans, each of which covers all pixels; an icon around an image
that is larger than the icon claims; a TIFF with too many strips; an Exif block with too many values.
"""

import ctypes
import io
import os
import re
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Condition, Lock
from typing import IO, Any

from prolip.core.errors import UsageError
from prolip.io.reading import MEGABYTE

MEMORY_VARIABLE = "PROLIP_IMAGE_MEMORY"
MEMORY_LIMIT = 800  # megabytes: a process stays below 1.5 GB, and 178 million pixels of RGBA fit
_LARGE = 64 * 10**6  # bytes; returning less to the system is not worth the milliseconds it takes
FILE_LIMIT = 1 << 30  # bytes of one image's file
WHOLE_LIMIT = 256 * MEGABYTE  # bytes of a file that its decoder reads into memory as a whole
READ_WHOLE = ("WEBP", "AVIF", "HEIF")
HEADER_LIMIT = 64 * MEGABYTE  # bytes read before the first pixel
HEADER_SECONDS = 3.0  # of this thread, so that a busy machine rejects no more than an idle one
SECONDS = 8.0  # to decode one image
SCANS = 100  # of a JPEG; encoders write about ten
SEGMENTS = 20_000  # of a JPEG, each of up to 64 kB
EXIF_LIMIT = MEGABYTE
ICON = 1024  # pixels of a side; Windows writes 256 at most, macOS 1024
STRIPS = 1_000_000  # of a TIFF, or tiles: enough for 178 million pixels in tiles of 16 x 16

_FIRST = 8 * MEGABYTE  # bytes that are searched first; a scan of all components starts in them
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")  # the start of a segment; in data a zero follows 255
_FRAMES = {0xC0, 0xC1, 0xC2, 0xC9, 0xCA}  # markers of a JPEG's size
_PROGRESSIVE = {0xC2, 0xCA}
_TAG_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
_STRIP_TAGS = (273, 279, 324, 325)  # offsets and lengths of strips and of tiles


def _trim() -> None:
    """Return free memory to the system; glibc keeps it for the thread that used it."""
    with suppress(OSError, AttributeError, TypeError):  # another C library; Windows
        ctypes.CDLL(None).malloc_trim(0)


class MemoryBudget:
    """Bytes that images may take together. A thread that needs more than is left waits."""

    def __init__(self) -> None:
        self._held = 0
        self._turn, self._released = Lock(), Condition()

    @property
    def limit(self) -> int:
        """The bytes that images may take together: the environment's setting, or MEMORY_LIMIT."""
        megabytes = os.environ.get(MEMORY_VARIABLE) or str(MEMORY_LIMIT)
        if not megabytes.isdecimal() or not int(megabytes):
            raise UsageError(f"{MEMORY_VARIABLE} must be a number of megabytes, got {megabytes!r}")
        return int(megabytes) * 10**6

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Reserve bytes, at most the limit, for the time of the context."""
        with self._turn, self._released:  # held while waiting, so that small images do not overtake
            self._released.wait_for(lambda: self._held == 0 or self._held + size <= self.limit)
            self._held += size
        try:
            yield
        finally:
            if size >= _LARGE:
                _trim()
            with self._released:
                self._held -= size
                self._released.notify_all()


IMAGE_MEMORY = MemoryBudget()


class LimitExceeded(ValueError):  # noqa: N818
    """An image takes more time, memory or reading than an image of its size can need."""


class LimitedStream:
    """The file of an image as its decoder sees it; only `read` is limited."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.allow(HEADER_LIMIT, HEADER_SECONDS)

    def allow(self, count: int, seconds: float) -> None:
        """Set how many bytes may be read from now on, and for how long."""
        self._left, self._until = count, time.thread_time() + seconds

    def read(self, size: int | None = -1) -> bytes:
        """Read at most `size` bytes."""
        if time.thread_time() > self._until:
            raise LimitExceeded("decoding it takes too long: save it as an ordinary JPEG or PNG")
        count = self._left + 1 if size is None or size < 0 else min(size, self._left + 1)
        content = self._stream.read(count)
        self._left -= len(content)
        if self._left < 0:
            raise LimitExceeded("more must be read than its pixels need: save it without layers and metadata")
        return content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def file_size(stream: IO[bytes]) -> int:
    """Return the size of a stream in bytes, and rewind it."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    return size


def check_jpeg(stream: IO[bytes]) -> bool:
    """Reject a JPEG with too many scans or too large an Exif block.

    Return whether it may have several scans: then a decoder holds all its coefficients.
    """
    exif, scans, several = _survey(stream.read(_FIRST))
    if several and (size := file_size(stream)) > _FIRST:
        if size > WHOLE_LIMIT:
            raise LimitExceeded(f"it has several scans and more than {WHOLE_LIMIT >> 20} MB: save it again")
        with IMAGE_MEMORY.hold(size):  # not mapped: a file that is cut short meanwhile would end the process
            exif, scans, several = _survey(stream.read(size))
    if scans > SCANS:
        raise LimitExceeded(f"it has more than {SCANS} scans: save it as an ordinary JPEG")
    if len(exif) > EXIF_LIMIT:
        raise LimitExceeded(f"it has more than {EXIF_LIMIT >> 20} MB of Exif data: save it without metadata")
    if exif:
        check_tags(io.BytesIO(exif))
    return several


def _survey(content: bytes) -> tuple[bytes, int, bool]:
    """Return the Exif block of a JPEG, the number of its scans, and whether it may have several.

    Counting stops where there are too many. An image that is not progressive, and has all its components in
    the first scan, has no other.
    """
    exif, scans, components, progressive, place, segments = b"", 0, 0, False, 0, 0
    while scans <= SCANS and len(exif) <= EXIF_LIMIT and (found := _MARKER.search(content, place)):
        place = found.end()
        marker = content[place - 1]
        if marker in (0x01, 0xD8):  # which have no content
            continue
        if marker == 0xD9:  # the end of the image
            break
        segments += 1
        if segments > SEGMENTS:
            raise LimitExceeded(f"it has more than {SEGMENTS:,} segments: save it as an ordinary JPEG")
        segment = content[place : place + int.from_bytes(content[place : place + 2], "big")]
        if marker in _FRAMES and len(segment) > 7:
            components, progressive = segment[7], marker in _PROGRESSIVE
        elif marker == 0xE1 and segment[2:6] == b"Exif":
            exif += segment[8:]
        elif marker == 0xDA:
            scans += 1
            if not progressive and segment[2:3] == bytes([components]):
                return exif, scans, False
        place += len(segment)
    return exif, scans, True


def check_tags(stream: IO[bytes]) -> None:
    """Reject a TIFF or Exif block whose first directory has too many strips or too much data."""
    start = stream.read(16)
    order = "<" if start[:2] == b"II" else ">"
    large = start[2:4] in (b"\x2b\0", b"\0\x2b")
    head, entry = (f"{order}Q", f"{order}HHQ8x") if large else (f"{order}H", f"{order}HHI4x")
    try:
        (offset,) = struct.unpack_from(f"{order}{'Q' if large else 'I'}", start, 8 if large else 4)
        stream.seek(min(offset, FILE_LIMIT))
        (count,) = struct.unpack(head, stream.read(struct.calcsize(head)))
        entries = stream.read(min(count, 1 << 16) * struct.calcsize(entry))
        entries = entries[: len(entries) // struct.calcsize(entry) * struct.calcsize(entry)]
    except struct.error:
        return  # Pillow reports what is wrong with it
    total = 0
    for tag, kind, number in struct.iter_unpack(entry, entries):
        total += number * _TAG_SIZES.get(kind, 0)
        if tag in _STRIP_TAGS and number > STRIPS:
            raise LimitExceeded(f"it has {number:,} strips, {STRIPS:,} are the limit: save it again")
    if total > HEADER_LIMIT:
        raise LimitExceeded(f"it has {total >> 20} MB of metadata, {HEADER_LIMIT >> 20} are the limit")


def check_icon(stream: IO[bytes], kind: str) -> None:
    """Reject an .ico or .icns around an image that is larger than icons are.

    Pillow decodes the image in an icon whatever size the icon claims.
    """
    stream.seek(0)
    offsets = _ico_offsets(stream) if kind == "ICO" else _icns_offsets(stream)
    for offset in offsets:
        stream.seek(offset)
        width, height = _embedded_size(stream.read(4096), kind)
        if max(width, height) > ICON:
            raise LimitExceeded(
                f"it is an icon around {width} x {height} pixels, {ICON} x {ICON} are the limit"
            )


def _embedded_size(start: bytes, kind: str) -> tuple[int, int]:
    """Return the size of the image that starts like this; 0 x 0 where it has no size of its own."""
    if start.startswith(b"\x89PNG") and len(start) >= 24:
        return struct.unpack(">16xII", start[:24])
    if kind == "ICO":
        if len(start) < 12:
            return 0, 0
        _, width, height = struct.unpack("<Iii", start[:12])  # a bitmap, and below it a mask
        return abs(width), abs(height) // 2
    if start.startswith((b"\xff\x4f\xff\x51", b"\x0d\x0a\x87\x0a", b"\0\0\0\x0cjP")):  # JPEG 2000
        place = start.find(b"\xff\x4f\xff\x51")
        if place < 0 or len(start) < place + 24:
            raise LimitExceeded("the size of an image in the icon cannot be read: save it as PNG")
        width, height, left, top = struct.unpack_from(">IIII", start, place + 8)
        return width - left, height - top
    return 0, 0


def _ico_offsets(stream: IO[bytes]) -> list[int]:
    count = int.from_bytes(stream.read(6)[4:], "little")
    entries = stream.read(16 * count)
    return [offset for (offset,) in struct.iter_unpack("<12xI", entries[: len(entries) // 16 * 16])]


def _icns_offsets(stream: IO[bytes]) -> list[int]:
    offsets: list[int] = []
    place, end = 8, int.from_bytes(stream.read(8)[4:], "big")
    while place < end and len(header := stream.read(8)) == 8 and len(offsets) < 1000:
        offsets.append(place + 8)
        place += max(8, int.from_bytes(header[4:], "big"))
        stream.seek(place)
    return offsets
