"""A folder of features with the paths of their images: what `prolip embed` writes.

    STORE/<space>/...               the features, by content (see store.py)
    STORE/index-<i>-of-<n>.jsonl    a line for each image: {"path", "key", "state", "run"}

A key is the SHA-256 of the image's content, a state what `prolip.io.files.file_state` says of its file. An
index is written as the run goes, a few thousand images at a time, so that a run that was stopped goes on
where it was: images that are listed with the state that they have now are passed over without being opened.
Another state means reading the image, and encoding it if its content is new; so does the state null, of a
file that had changed a moment before. Of several lines for a path the last of an index counts, and of several
indices the one of the latest run; runs are counted, whatever the clock says. Shards, i of n, take every n-th
image, write an index of their own, and may run at once, on one machine or on many; of one shard only one
process may run.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from prolip.core.errors import InputError, UsageError
from prolip.encoders.base import Encoder
from prolip.features.contents import is_settled
from prolip.features.extract import Progress, extract
from prolip.features.images import NoImageLeft
from prolip.features.store import FeatureStore, Space
from prolip.io.appending import appending
from prolip.io.files import file_state, readable
from prolip.io.reading import open_regular, parse_json, read_lines
from prolip.io.writing import check_place

CHUNK = 4096  # images between two writes of the index


class IndexEntry(NamedTuple):
    """What an index says of an image; the state is None where it could not tell a later change."""

    key: bytes
    state: tuple[int, ...] | None
    run: int


@dataclass(frozen=True)
class Embedded:
    """What a run of `embed` did: images added or changed, encoded, skipped as unreadable, there already."""

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
        latest, space = _latest(target), store.space(encoder, exact_decode)
        run = 1 + max((entry.run for entry in latest.values()), default=0)
        changed = [
            (path, state) for path in mine if not _is_listed(path, state := _state(path), latest, space)
        ]
        bad, encoded, added = [], 0, 0
        for start in range(0, len(changed), CHUNK):
            chunk = changed[start : start + CHUNK]

            def report(done: int, _: int, start: int = start) -> None:
                if progress is not None:
                    progress(len(mine) - len(changed) + start + done, len(mine))

            try:
                found = extract(
                    encoder, [path for path, _ in chunk], store=store, skip_bad=skip_bad, progress=report,
                    exact_decode=exact_decode,
                )  # fmt: skip
            except NoImageLeft as none:
                bad += none.bad
                continue
            bad += found.bad
            encoded += found.encoded
            for i, key in zip(found.kept, found.hashes, strict=True):
                path, state = chunk[i]
                before = latest.get(str(path))
                added += before is None or before.key != key
                if before is None or (before.key, before.state) != (key, state):
                    line = {"path": str(path), "key": key.hex(), "state": state, "run": run}
                    # The escapes of `readable` are JSON's too.
                    index.write(f"{readable(json.dumps(line, ensure_ascii=False))}\n")
        return Embedded(added, encoded, bad, len(mine) - added - len(bad))


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
    path, key, state, run = found["path"], bytes.fromhex(found["key"]), found["state"], found["run"]
    numbers = [run, *(state or ())]
    if not (isinstance(path, str) and len(key) == 32 and all(type(number) is int for number in numbers)):
        raise ValueError("it lacks the path, key, state or run")
    return path, IndexEntry(key, None if state is None else tuple(state), run)


def open_store(root: Path, encoder: Encoder) -> tuple[Space, list[tuple[str, bytes]]]:
    """The features of this encoder below `root`, and every image's path and key."""
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
    """By path, the last entry of an index; of several indices that of the latest run.

    A path is in several where the number of shards was another before.
    """
    latest: dict[str, IndexEntry] = {}
    for file in _indices(root):
        for path, entry in dict(read_index(file)).items():
            if path not in latest or entry.run >= latest[path].run:
                latest[path] = entry
    return latest


def _is_listed(
    path: Path, state: tuple[int, ...] | None, latest: dict[str, IndexEntry], space: Space
) -> bool:
    """Whether an image is listed as it is now, and its features are there."""
    entry = latest.get(str(path))
    return (
        entry is not None
        and state is not None
        and entry.state == state
        and space.get(entry.key, 0) is not None
    )


def _state(path: Path) -> tuple[int, ...] | None:
    """The state of a file, taken before it is read, so that a change meanwhile is noticed next time."""
    try:
        state = file_state(path)
    except OSError:  # reading it will say why
        return None
    return state if is_settled(state) else None
