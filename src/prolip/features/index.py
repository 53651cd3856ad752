"""A folder of features with the paths of their images: what `prolip embed` writes.

    STORE/<space>/...               the features, by content (see store.py)
    STORE/index-<i>-of-<n>.jsonl    a line for each image: {"path": ..., "key": SHA-256 of its content}

An index is written as the run goes, a few thousand images at a time, so that a run that was stopped goes on
where it was: images whose path is listed are passed over without being opened. Shards, i of n, take every
n-th image, write an index of their own, and may run at once, on one machine or on many.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from prolip.core.errors import InputError, UsageError
from prolip.core.files import appending
from prolip.encoders.base import Encoder
from prolip.features.extract import extract
from prolip.features.images import NoImageLeft
from prolip.features.store import FeatureStore, Space

CHUNK = 4096  # images between two writes of the index


@dataclass(frozen=True)
class Embedded:
    """What a run did."""

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
    progress: Callable[[int, int], None] | None = None,
) -> Embedded:
    """Write features of images below `root`, resuming what is there.

    Parameters
    ----------
    images
        Paths; each is listed as it is given here.
    shard
        (i, n): of n shards the i-th, counted from 1.
    skip_bad
        Pass over images that cannot be read.
    """
    number, shards = shard
    if not 1 <= number <= shards:
        raise UsageError(f"a shard is i/n with i from 1 to n, got {number}/{shards}")
    store = FeatureStore(root)
    index = root / f"index-{number}-of-{shards}.jsonl"
    listed = list(read_index(index)) if index.is_file() else []
    space = store.space(encoder)
    done = {path for path, key in listed if space.get(key, 0) is not None}
    mine = [path for path in images[number - 1 :: shards] if str(path) not in done]
    already, bad, encoded = len(images[number - 1 :: shards]) - len(mine), [], 0
    root.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(mine), CHUNK):
        chunk = mine[start : start + CHUNK]

        def tell(done: int, _: int, start: int = start) -> None:
            if progress is not None:
                progress(already + start + done, already + len(mine))

        try:
            found = extract(encoder, chunk, store=store, skip_bad=skip_bad, progress=tell)
        except NoImageLeft as none:
            bad += none.bad
            continue
        bad += found.bad
        encoded += found.encoded
        _append(index, [(str(chunk[i]), key) for i, key in zip(found.kept, found.hashes, strict=True)])
    return Embedded(len(mine) - len(bad), encoded, bad, already)


def read_index(file: Path) -> Iterator[tuple[str, bytes]]:
    """Paths and keys of an index; a last line that was cut off is passed over."""
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith("\n"):
                return
            try:
                entry = json.loads(line)
                yield entry["path"], bytes.fromhex(entry["key"])
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(f"{file}, line {number} is damaged: {error}; remove the file") from error


def open_store(root: Path, encoder: Encoder) -> tuple[Space, list[tuple[str, bytes]]]:
    """The features of this encoder below `root`, and every image's path and key."""
    indices = sorted(root.glob("index-*-of-*.jsonl"))
    if not indices:
        raise InputError(f"{root} is no store of `prolip embed`: it has no index")
    space = FeatureStore(root).space(encoder)
    if not len(space):
        raise InputError(
            f"{root} has no features of {encoder.name} with these weights: embed the images with this model"
        )
    # An image that had to be embedded again is listed again: the last line counts.
    return space, list(dict(entry for file in indices for entry in read_index(file)).items())


def _append(index: Path, entries: list[tuple[str, bytes]]) -> None:
    lines = [json.dumps({"path": path, "key": key.hex()}, ensure_ascii=False) for path, key in entries]
    with appending(index) as file:
        file.write("".join(f"{line}\n" for line in lines))
