"""A store of features that lists the paths of its images: what `prolip embed` writes (see store.py).

The list is written during the run, a few thousand images at a time, so that an interrupted run resumes where
it stopped: images whose files have not changed are not opened. Shard i of n takes every n-th image and writes
a file of its own, so that shards may run at the same time, on one machine or on several. If a path is in
several files, the one of the latest run counts; runs are numbered, independently of the clock.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prolip.core.errors import InputError, UsageError
from prolip.encoders.base import Encoder
from prolip.features.extract import extract
from prolip.features.images import NoImagesError
from prolip.features.store import FeatureStore, Space
from prolip.io.progress import Progress
from prolip.io.writing import check_place

CHUNK = 4096  # images between two writes of the list


@dataclass(frozen=True)
class EmbedResult:
    """How many images are new or changed, were encoded, could not be read, and were listed already."""

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
) -> EmbedResult:
    """Write features of images below `root`, resuming an earlier run.

    Images are listed by their paths as they are given here; shard (i, n) is the i-th of n, counted from 1.
    `skip_bad` is that of `extract`.
    """
    number, shards = shard
    if not 1 <= number <= shards:
        raise UsageError(f"a shard is i/n with i from 1 to n, got {number}/{shards}")
    target = check_place(root)
    if target.exists() and not target.is_dir():
        raise UsageError(f"{root} is a file: features go into a folder, name one that is new or of `embed`")
    mine, store = images[number - 1 :: shards], FeatureStore(target, f"features-{number}-of-{shards}")
    listed = _listed(store)
    run = 1 + max((run for _, run in listed.values()), default=0)
    bad, encoded, added = [], 0, 0
    for start in range(0, len(mine), CHUNK):
        chunk = mine[start : start + CHUNK]

        def report(done: int, _: int, start: int = start) -> None:
            if progress is not None:
                progress(start + done, len(mine))

        try:
            result = extract(encoder, chunk, store=store, skip_bad=skip_bad, progress=report)
        except NoImagesError as none:
            bad += none.bad
            continue
        bad += result.bad
        encoded += result.encoded
        keys = {str(chunk[i]): key for i, key in zip(result.kept, result.hashes, strict=True)}
        rows = [
            (os.fsencode(path), key, run) for path, key in keys.items() if listed.get(path, (b"",))[0] != key
        ]
        store.write("INSERT OR REPLACE INTO images VALUES (?, ?, ?)", rows)
        added += len(rows)
    return EmbedResult(added, encoded, bad, len(mine) - added - len(bad))


def open_store(root: Path, encoder: Encoder) -> tuple[Space, list[tuple[str, bytes]]]:
    """Open the features of this encoder below `root`; return them with every image's path and key."""
    store = FeatureStore(root)
    listed = _listed(store)
    if not listed:
        raise InputError(f"{root} was not written by `prolip embed`: it lists no images")
    space = store.space(encoder)
    if not len(space):
        raise InputError(
            f"{root} has no features of {encoder.name} with these weights: embed the images with this model"
        )
    return space, [(path, key) for path, (key, _) in listed.items()]


def _listed(store: FeatureStore) -> dict[str, tuple[bytes, int]]:
    """Return the key of each path, and the run that listed it: the latest, of several."""
    found = [row for row in store.select("SELECT path, key, run FROM images") if type(row[2]) is int]
    return {os.fsdecode(path): (key, run) for path, key, run in sorted(found, key=lambda row: row[2])}
