"""A folder of features with the paths of their images: what `prolip embed` writes.

    STORE/<space>/...               the features, by content (see store.py)
    STORE/index-<i>-of-<n>.jsonl    a line for each image: {"path", "key", "size", "mtime", "listed"}

A key is the SHA-256 of the image's content; times are nanoseconds. An index is written as the run goes, a few
thousand images at a time, so that a run that was stopped goes on where it was: images that are listed with
the size and time of change that they have now are passed over without being opened. Another size or time
means reading the image, and encoding it if its content is new; of several lines for a path the one listed
last counts. Shards, i of n, take every n-th image, write an index of their own, and may run at once, on one
machine or on many; of one shard only one process may run.
"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from prolip.core.appending import appending
from prolip.core.errors import InputError, UsageError
from prolip.core.files import readable
from prolip.core.reading import open_regular, parse_json, read_lines
from prolip.core.writing import check_place
from prolip.encoders.base import Encoder
from prolip.features.extract import Progress, extract
from prolip.features.images import NoImageLeft
from prolip.features.store import FeatureStore, Space

CHUNK = 4096  # images between two writes of the index


class IndexEntry(NamedTuple):
    """What an index says of an image; size and time are None where they could not be read."""

    key: bytes
    size: int | None
    mtime: int | None
    listed: int


@dataclass(frozen=True)
class Embedded:
    """What a run of `embed` did: images added, encoded, left out as unreadable, and there already."""

    images: int
    encoded: int
    skipped: list[tuple[str, str]]
    already: int


def embed(
    encoder: Encoder,
    images: Sequence[Path],
    root: Path,
    *,
    shard: tuple[int, int] = (1, 1),
    skip_bad: bool = False,
    progress: Progress | None = None,
    exact_decode: bool = False,
) -> Embedded:
    """Write features of images below `root`, resuming what is there.

    Images are listed by their paths as they are given here; shard (i, n) is the i-th of n, counted from 1.
    `skip_bad` and `exact_decode` are those of `extract`.
    """
    number, shards = shard
    if not 1 <= number <= shards:
        raise UsageError(f"a shard is i/n with i from 1 to n, got {number}/{shards}")
    target = check_place(root)
    if target.exists() and not target.is_dir():
        raise UsageError(f"{root} is a file: features go into a folder, name one that is new or of `embed`")
    with appending(target / f"index-{number}-of-{shards}.jsonl") as index:
        mine, store = images[number - 1 :: shards], FeatureStore(target)
        changed, sizes = _changed(mine, _latest(target), store.space(encoder, exact_decode))
        already, bad, encoded = len(mine) - len(changed), [], 0
        for start in range(0, len(changed), CHUNK):
            chunk = changed[start : start + CHUNK]

            def report(done: int, _: int, start: int = start) -> None:
                if progress is not None:
                    progress(already + start + done, already + len(changed))

            try:
                found = extract(
                    encoder, chunk, store=store, skip_bad=skip_bad, progress=report, exact_decode=exact_decode
                )
            except NoImageLeft as none:
                bad += none.bad
                continue
            bad += found.bad
            encoded += found.encoded
            now = time.time_ns()
            for i, key in zip(found.kept, found.hashes, strict=True):
                entry = {**IndexEntry(key, *sizes[start + i], now)._asdict(), "key": key.hex()}
                line = json.dumps({"path": str(chunk[i]), **entry}, ensure_ascii=False)
                index.write(f"{readable(line)}\n")  # the escapes are JSON's too, and are read as they were
        return Embedded(len(changed) - len(bad), encoded, bad, already)


def read_index(file: Path) -> Iterator[tuple[str, IndexEntry]]:
    """Paths and entries of an index; a last line that was cut off is passed over."""
    with open_regular(file) as stream:
        for number, line in enumerate(read_lines(stream, file), 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield _entry(line)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise InputError(f"{file}, line {number} is damaged: {error}; remove the file") from error


def _entry(line: bytes) -> tuple[str, IndexEntry]:
    found = parse_json(line.decode("utf-8"))
    path, key, listed = found["path"], bytes.fromhex(found["key"]), found["listed"]
    size, mtime = found["size"], found["mtime"]
    whole = all(value is None or isinstance(value, int) for value in (size, mtime))
    if not (isinstance(path, str) and len(key) == 32 and isinstance(listed, int) and whole):
        raise ValueError("it does not tell path, key, size and times")
    return path, IndexEntry(key, size, mtime, listed)


def open_store(root: Path, encoder: Encoder) -> tuple[Space, list[tuple[str, bytes]]]:
    """The features of this encoder below `root`, and every image's path and key."""
    if not _indices(root):
        raise InputError(f"{root} is no store of `prolip embed`: it has no index")
    space = FeatureStore(root).space(encoder, exact=None)
    if not len(space):
        raise InputError(
            f"{root} has no features of {encoder.name} with these weights: embed the images with this model"
        )
    return space, [(path, entry.key) for path, entry in _latest(root).items()]


def _indices(root: Path) -> list[Path]:
    return sorted(root.glob("index-*-of-*.jsonl"))


def _latest(root: Path) -> dict[str, IndexEntry]:
    """By path, the entry that was listed last, in whichever index: shards may have been cut anew since."""
    found: dict[str, IndexEntry] = {}
    for file in _indices(root):
        for path, entry in read_index(file):
            if path not in found or entry.listed >= found[path].listed:
                found[path] = entry
    return found


def _changed(
    images: Sequence[Path], listed: dict[str, IndexEntry], space: Space
) -> tuple[list[Path], list[tuple[int | None, int | None]]]:
    """Images that are not listed as they are now, or have lost their features; and each one's size and time.

    These are taken before an image is read, so that a change while it is being read is noticed next time.
    """
    changed, sizes = [], []
    for path in images:
        entry, now = listed.get(str(path)), _size_and_time(path)
        if entry is None or None in now or now != entry[1:3] or space.get(entry.key, 0) is None:
            changed.append(path)
            sizes.append(now)
    return changed, sizes


def _size_and_time(path: Path) -> tuple[int | None, int | None]:
    try:
        found = path.stat()
    except OSError:  # reading it will say why
        return None, None
    return found.st_size, found.st_mtime_ns
