"""A folder of features with the paths of their images: what `prolip embed` writes.

    STORE/<space>/...               the features, by content (see store.py)
    STORE/index-<i>-of-<n>.jsonl    a line for each image: {"path", "key", "run"}

A key is the SHA-256 of the image's content. The index is written during the run, a few thousand images at a
time, so that an interrupted run resumes where it stopped: images whose files have not changed (contents.py)
are not opened. If a path has several lines, the last one of an index counts, and of several indices that of
the latest run; runs are numbered, independently of the clock. Shard i of n takes every n-th image and writes
an index of its own. Shards may run at the same time, on one machine or on several; one process per shard.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from prolip.core.errors import InputError, UsageError
from prolip.encoders.base import Encoder
from prolip.features.extract import Progress, extract
from prolip.features.images import NoImageLeft
from prolip.features.store import FeatureStore, Space
from prolip.io.appending import appending
from prolip.io.files import readable
from prolip.io.reading import open_regular, parse_json, read_lines
from prolip.io.writing import check_place

CHUNK = 4096  # images between two writes of the index


class IndexEntry(NamedTuple):
    """The content of an image, and the number of the run that listed it."""

    key: bytes
    run: int


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
    exact_decode: bool = False,
) -> EmbedResult:
    """Write features of images below `root`, resuming an earlier run.

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
        mine, store, latest = images[number - 1 :: shards], FeatureStore(target), _latest(target)
        run = 1 + max((entry.run for entry in latest.values()), default=0)
        bad, encoded, added = [], 0, 0
        for start in range(0, len(mine), CHUNK):
            chunk = mine[start : start + CHUNK]

            def report(done: int, _: int, start: int = start) -> None:
                if progress is not None:
                    progress(start + done, len(mine))

            try:
                result = extract(
                    encoder,
                    chunk,
                    store=store,
                    skip_bad=skip_bad,
                    progress=report,
                    exact_decode=exact_decode,
                )
            except NoImageLeft as none:
                bad += none.bad
                continue
            bad += result.bad
            encoded += result.encoded
            for i, key in zip(result.kept, result.hashes, strict=True):
                path = str(chunk[i])
                if path not in latest or latest[path].key != key:
                    added += 1
                    line = {"path": path, "key": key.hex(), "run": run}
                    # The escapes of `readable` are JSON's too.
                    index.write(f"{readable(json.dumps(line, ensure_ascii=False))}\n")
        return EmbedResult(added, encoded, bad, len(mine) - added - len(bad))


def read_index(file: Path) -> Iterator[tuple[str, IndexEntry]]:
    """Read the paths and entries of an index; a truncated last line is skipped."""
    with open_regular(file) as stream:
        for number, line in enumerate(read_lines(stream, file), 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield _entry(line)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise InputError(f"{file}, line {number} is damaged: {error}; remove the file") from error


def _entry(line: bytes) -> tuple[str, IndexEntry]:
    fields = parse_json(line.decode("utf-8"))
    path, key, run = fields["path"], bytes.fromhex(fields["key"]), fields["run"]
    if not (isinstance(path, str) and len(key) == 32 and type(run) is int):
        raise ValueError("it lacks the path, key or run")
    return path, IndexEntry(key, run)


def open_store(root: Path, encoder: Encoder) -> tuple[Space, list[tuple[str, bytes]]]:
    """Open the features of this encoder below `root`; return them with every image's path and key."""
    if not _indices(root):
        raise InputError(f"{root} was not written by `prolip embed`: it has no index")
    space = FeatureStore(root).space(encoder, exact=None)
    if not len(space):
        raise InputError(
            f"{root} has no features of {encoder.name} with these weights: embed the images with this model"
        )
    return space, [(path, entry.key) for path, entry in _latest(root).items()]


def _indices(root: Path) -> list[Path]:
    return sorted(root.glob("index-*-of-*.jsonl"))


def _latest(root: Path) -> dict[str, IndexEntry]:
    """Return the entry of each path: the last of an index, and of several indices that of the latest run.

    A path is in several indices if the number of shards has changed.
    """
    latest: dict[str, IndexEntry] = {}
    for file in _indices(root):
        for path, entry in dict(read_index(file)).items():
            if path not in latest or entry.run >= latest[path].run:
                latest[path] = entry
    return latest
