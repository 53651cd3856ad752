"""Damaged and crafted files, from a seed, and what a reader does with each.

A file is damaged as bytes, or put together with valid checksums and one thing in it that does not belong. A
reader may refuse it with an error of ours, or read it; where there is a checksum, what it reads must be what
was written. It may take no more than `SECONDS` and `MEGABYTES`.
"""

from __future__ import annotations

import math
import random
import signal
import struct
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core import ProlipError
from tally import Faults

SECONDS, MEGABYTES = 20.0, 1200.0
TOKENS = (
    b"NaN", b"1e400", b"-1", b"null", b"true", b"[" * 100_000, b"9" * 5000, b'"', b"{}", b"\xff\xfe", b"\n",
    b"\r", b"\0" * 8, b"\xff" * 8, b"\\ud800", b",", b"<f8", b"|O", b"(1, 99999999999)", b"0" * 64,
    b"\xe2\x80\x8b", b"PK\3\4", b"\xff\xda", b"Exif\0\0", b"[]," * 1000,
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 3, 10**9, 10**30, 1e308, math.inf, math.nan, "", "x" * 2000, "\ud800", "../..", [], {},
    [None], [[1]], {"a": 1}, "hf:/etc", "os:system", "\u200b",
)  # fmt: skip
NUMBERS = (0, 1, 2, 255, 256, 32767, 65535, 65536, 10**6, 2**28, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1)


@dataclass
class Tally(Faults):
    """Inputs of one kind, and what became of them."""

    inputs: int = 0
    refused: int = 0  # with a ProlipError
    seconds: float = 0.0  # of the slowest
    megabytes: float = 0.0  # that the process grew by while one was read, at the peak

    def __str__(self) -> str:
        problems = ", ".join(f"{kind} {count}" for kind, count in self.found.items()) or "no problem"
        return (
            f"{self.name:<28} {self.inputs:>7,} inputs  {self.refused:>7,} refused  "
            f"slowest {self.seconds:5.1f} s  peak +{self.megabytes:5.0f} MB  {problems}"
        )


def attempt(tally: Tally, read: Callable[[], Any], expected: Any = None) -> None:
    """One input: read, or refused; with `expected`, it may not be read as anything else."""
    tally.inputs += 1
    began, found = time.perf_counter(), expected
    _forget_peak()
    before = _peak()
    try:
        with _time_limit(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = read()
    except ProlipError:
        tally.refused += 1
        found = expected
    except TimeoutError:
        found = expected
    except Exception:
        tally.add("traceback", traceback.format_exc()[-1500:])
        found = expected
    tally.seconds = max(tally.seconds, seconds := time.perf_counter() - began)
    if seconds >= SECONDS:
        tally.add("over time", f"{seconds:.0f} s")
    tally.megabytes = max(tally.megabytes, peak := _peak() - before)
    if peak > MEGABYTES:
        tally.add("over memory", f"{peak:.0f} MB")
    if expected is not None and found != expected:
        tally.add("silent change", f"{found!r:.200} instead of {expected!r:.200}")


@contextmanager
def _time_limit() -> Iterator[None]:
    if not hasattr(signal, "setitimer"):
        yield
        return

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _forget_peak() -> None:
    """Let the peak of memory start anew, where the system can (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _peak() -> float:
    """Megabytes of this process, at most, since `_forget_peak`."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1000
    except (OSError, IndexError):
        return 0.0


def damage(content: bytes, generator: random.Random) -> bytes:
    """The content with one to four things done to it."""
    data = bytearray(content)
    for _ in range(generator.choice((1, 1, 1, 2, 4))):
        start = min(len(data), 256) if generator.random() < 0.3 else len(data)  # headers are at the start
        place = generator.randrange(start + 1)
        match generator.randrange(8):
            case 0:
                data[place : place + 1] = bytes([generator.randrange(256)])
            case 1:
                data = data[:place]
            case 2:
                data[place:place] = generator.choice(TOKENS)
            case 3:
                data[place : place + generator.randrange(1, 64)] = b""
            case 4:
                part = data[place // 2 : place // 2 + generator.randrange(1, 256)]
                data[place:place] = part * generator.choice((1, 1, 1, 500))
            case 5 if data:
                data[place % len(data)] ^= 1 << generator.randrange(8)
            case _:
                data[place : place + 8] = claim(generator, data[place : place + 8])
    return bytes(data)


def claim(generator: random.Random, before: bytes) -> bytes:
    """A number of two, four or eight bytes, such as sizes and counts are, in the place of what was there."""
    form = generator.choice(("<H", ">H", "<I", ">I", "<Q", ">Q"))
    number = generator.choice(NUMBERS) % (1 << 8 * struct.calcsize(form))
    return struct.pack(form, number) + before[struct.calcsize(form) :]


def damage_png(content: bytes, generator: random.Random) -> bytes:
    """A PNG with a chunk changed, repeated or added, and checksums that are right."""
    chunks, place = [], 8
    while place + 8 <= len(content):
        size = int.from_bytes(content[place : place + 4], "big")
        chunks.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + size]))
        place += 12 + size
    k = generator.randrange(len(chunks))
    kind, own = chunks[k]
    bomb = zlib.compress(bytes(generator.choice((10, 10**5, 10**7))))
    match generator.randrange(4):
        case 0:
            chunks[k] = kind, damage(own, generator)
        case 1:
            chunks[k:k] = [chunks[k]] * generator.choice((1, 10, 5000))
        case 2:
            name = generator.choice((b"zTXt", b"iTXt", b"iCCP", b"eXIf", b"tRNS", b"acTL", b"fdAT", b"fcTL"))
            chunks[k:k] = [(name, b"a\0\0" + bomb)] * generator.choice((1, 1, 20))
        case 3:
            chunks[k] = kind, bomb
    return content[:8] + b"".join(
        len(own).to_bytes(4, "big") + kind + own + zlib.crc32(kind + own).to_bytes(4, "big")
        for kind, own in chunks
    )


def damage_jpeg(content: bytes, generator: random.Random) -> bytes:
    """A JPEG with a segment changed, moved or repeated many times; sizes of up to 65,535."""
    starts = [k for k in range(len(content) - 1) if content[k] == 255 and 0xC0 <= content[k + 1] < 0xFF]
    first, second = sorted(generator.choices([*starts, len(content)], k=2))
    segment = content[first:second]
    match generator.randrange(4):
        case 0:
            return content[:first] + segment * generator.choice((2, 50, 2000)) + content[second:]
        case 1:
            return content[:first] + damage(segment, generator) + content[second:]
        case 2:
            return content[:first] + content[second:]
        case _:
            frame = next((k for k in starts if content[k + 1] in (0xC0, 0xC2)), 0)
            sizes = struct.pack(">HH", *generator.choices((1, 8, 5000, 20000, 65500), k=2))
            return content[: frame + 5] + sizes + content[frame + 9 :]


def distort(value: Any, generator: random.Random) -> Any:
    """JSON with one thing in it replaced, gone or added."""
    if isinstance(value, dict) and value and generator.random() < 0.85:
        key = generator.choice(list(value))
        match generator.randrange(6):
            case 0:
                return {name: own for name, own in value.items() if name != key}
            case 1:
                return {**value, generator.choice(("extra", "", "format")): generator.choice(ODD)}
            case _:
                return {**value, key: distort(value[key], generator)}
    if isinstance(value, list) and value and generator.random() < 0.7:
        place = generator.randrange(len(value))
        return [
            *value[:place],
            *generator.choice(([], [distort(value[place], generator)], value)),
            *value[place + 1 :],
        ]
    return generator.choice(ODD)


def twist(tensors: dict[str, np.ndarray], generator: random.Random) -> dict[str, np.ndarray]:
    """Tensors with one of them of another kind, shape or content, gone, or one too many."""
    name = generator.choice(list(tensors))
    array = np.array(tensors[name])
    match generator.randrange(10):
        case 0:
            return {own: x for own, x in tensors.items() if own != name}
        case 1:
            extra = generator.choice(("extra", "adapter", "head.weight", "out_of_distribution.means"))
            return {**tensors, extra: array}
        case 2:
            kinds = (np.float16, np.float64, np.int8, np.int64, np.uint8, np.bool_)
            with np.errstate(all="ignore"):
                array = array.astype(generator.choice(kinds))
        case 3:
            array = array[:-1] if array.ndim else array[None]
        case 4:
            array = array.T.copy() if array.ndim > 1 else array[None]
        case 5:
            array = array[..., None]
        case 6:
            array = np.concatenate([array, array]) if array.ndim else array
        case 7:
            array = np.zeros((0, *array.shape[1:]), array.dtype)
        case 8:
            array = np.zeros_like(array)
        case _:
            wild = generator.choice((np.nan, np.inf, 1e38, -1e38, 255, -1))
            place = generator.randrange(max(1, array.size))
            with np.errstate(all="ignore"):
                array.reshape(-1)[place:][:1] = np.array(wild).astype(array.dtype)
    return {**tensors, name: array}
