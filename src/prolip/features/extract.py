"""Run the frozen tower over images, once.

A few threads read, hash and decode images ahead of the tower, which runs on the calling thread. Images whose
features are in the store are not decoded, and not even opened if their files have not changed since they were
last read. Others are encoded in batches and written during the run, so that an interruption loses seconds.

View 0 is the evaluation view. View v >= 1 is a random crop and flip, seeded by the image's content and v
alone: it is the same whatever else is in the run, and in whatever order.
"""

import hashlib
import os
import random
import time
import warnings
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from prolip.core.arrays import Array, to_numpy
from prolip.core.errors import InputError, Parameter
from prolip.data.imageset import LazyImage
from prolip.encoders.base import Encoder
from prolip.encoders.preprocess import Preprocess
from prolip.features.images import ImageError, NoImagesError, open_image
from prolip.features.store import FeatureStore
from prolip.io.environment import cores
from prolip.io.files import file_state
from prolip.io.progress import Progress

_FLUSH_SECONDS = 10.0
_LOOKED_UP = 1000  # images that are looked up in the store at a time


@dataclass(frozen=True, eq=False)
class Extraction:
    """Features of images, and which images could not be read."""

    features: Array  # [V, n, width] float32, of the n images that could be read
    kept: list[int]  # their indices in the input
    hashes: list[bytes]  # their contents' SHA-256
    bad: list[tuple[str, str]]  # name and reason of each image that could not be read
    encoded: int  # views that the tower was run on; the rest came from the store
    seconds: float  # of the whole extraction

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.features.shape))
        return f"Extraction({size} features, {self.encoded} encoded, {len(self.bad)} unreadable)"


def extract(
    encoder: Encoder,
    images: Sequence[Any],
    views: Sequence[int] = (0,),
    store: FeatureStore | None = None,
    skip_bad: bool | float = False,
    progress: Progress | None = None,
) -> Extraction:
    """Extract pre-projection features of images.

    Parameters
    ----------
    encoder
        The tower.
    images
        Paths, PIL images or arrays.
    views
        Which views: 0 is the centre, 1 and above are augmented.
    store
        Where features are looked up and stored; None encodes everything and stores nothing.
    skip_bad
        Skip images that cannot be read, a number at most this fraction of all; otherwise the first of them is
        an error.
    progress
        Called as `progress(done, total)`, in images, on this thread.
    """
    started = time.perf_counter()
    if not len(images):
        raise InputError("no images to encode")
    job = _Job(encoder, images, views, store)
    job.run(bool(skip_bad), progress or (lambda done, total: None))
    if store is not None and store.problem:
        warnings.warn(f"features are not stored: {store.problem}", stacklevel=2)
    kept = [index for index in range(len(images)) if index not in job.bad]
    bad = [(error.name, error.reason) for _, error in sorted(job.bad.items())]
    if not kept:
        raise NoImagesError(bad)
    if len(bad) > skip_bad * len(images):
        listed = "; ".join(f"{name}: {reason}" for name, reason in bad[:3])
        raise InputError(
            f"{len(bad)} of {len(images)} images cannot be read, more than "
            f"{100 * skip_bad:.0f} %: repair or remove them, or skip them with ",
            Parameter("skip_bad", True),
            f" ({listed})",
        )
    features = job.features[:, kept] if bad else job.features
    hashes = [job.keys[index] for index in kept]
    return Extraction(features, kept, hashes, bad, job.encoded, time.perf_counter() - started)


@dataclass(frozen=True, eq=False)
class _Loaded:
    """The output of a loader: rows from the store and pixels for the tower, by index in `views`."""

    key: bytes
    state: tuple[int, ...] | None  # of its file, if it has one
    rows: dict[int, Array]  # [width]
    pixels: dict[int, Array]  # uint8 [S, S, 3]


class _Job:
    """The state of one extraction. Only `_load` runs on other threads."""

    def __init__(
        self, encoder: Encoder, images: Sequence[Any], views: Sequence[int], store: FeatureStore | None
    ) -> None:
        self.encoder, self.images, self.views, self.store = encoder, images, views, store
        self.space = None if store is None else store.space(encoder)
        self.features = np.empty((len(views), len(images), encoder.width), dtype=np.float32)
        self.keys: dict[int, bytes] = {}
        self.bad: dict[int, ImageError] = {}
        self.encoded = 0
        self.waiting: list[tuple[int, int, Array]] = []  # image, index in `views`, and pixels to encode
        self.unwritten: list[tuple[int, int]] = []  # image and index in `views`
        self.read: list[tuple[str, tuple[int, ...], bytes]] = []  # path, state and content of files
        self.written_at = time.monotonic()

    def run(self, skip_bad: bool, progress: Progress) -> None:
        """Take what is stored, load the rest in threads, and encode it in batches."""
        size, total = self.encoder.batch_size, len(self.images)
        for start in range(0, total if self.store else 0, _LOOKED_UP):
            self._take_stored(range(start, min(start + _LOOKED_UP, total)))
            progress(len(self.keys), total)
        left = [index for index in range(total) if index not in self.keys]
        try:
            with closing(self._loaded(left)) as outcomes:
                for done, (index, outcome) in enumerate(outcomes, start=total - len(left) + 1):
                    if isinstance(outcome, _Loaded):
                        self._receive(index, outcome)
                    elif skip_bad:
                        self.bad[index] = outcome
                    else:
                        raise outcome
                    while len(self.waiting) >= size:
                        self._encode(size)
                    progress(done - len({index for index, _, _ in self.waiting}), total)
            if self.waiting:
                self._encode(size)
                progress(total, total)
        finally:  # what was encoded is written, also on Ctrl-C
            self._write()

    def _name(self, index: int) -> str:
        image = self.images[index]
        return str(image) if isinstance(image, (str, os.PathLike, LazyImage)) else f"number {index}"

    def _take_stored(self, indices: Sequence[int]) -> None:
        """Take the features of files that have not changed since they were recorded, without opening them."""
        assert self.store is not None
        assert self.space is not None
        files: dict[int, tuple[str, tuple[int, ...]]] = {}
        for index in indices:
            if isinstance(self.images[index], (str, os.PathLike)):
                with suppress(OSError, ValueError):  # opening the file reports the error
                    files[index] = os.fspath(self.images[index]), file_state(self.images[index])
        known = zip(files, self.store.known(list(files.values())), strict=True)
        keys = {index: key for index, key in known if key is not None}
        rows = self.space.get(list(set(keys.values())))
        for index, key in keys.items():
            if all((key, view) in rows for view in self.views):
                self.keys[index] = key
                self.features[:, index] = [rows[key, view] for view in self.views]

    def _load(self, index: int) -> _Loaded | ImageError:
        """Read an image; add rows from the store, and pixels for the rest."""
        try:
            with open_image(self.images[index], self._name(index)) as opened:
                stored = {} if self.space is None else self.space.get([opened.key])
                slots = {(opened.key, view): slot for slot, view in enumerate(self.views)}
                rows = {slots[place]: row for place, row in stored.items() if place in slots}
                pixels = {}
                if len(rows) < len(self.views):
                    preprocess = self.encoder.preprocess
                    image = opened.decode(preprocess.sufficient_side)
                    for slot in set(range(len(self.views))).difference(rows):
                        pixels[slot] = _view(preprocess, image, opened.key, self.views[slot])
                return _Loaded(opened.key, opened.state, rows, pixels)
        except ImageError as bad:
            return bad

    def _loaded(self, indices: Sequence[int]) -> Generator[tuple[int, _Loaded | ImageError], None, None]:
        """Yield images in order, loaded by threads; enough of them ahead to fill a batch with their views."""
        workers = min(16, max(2, cores()))
        ahead = max(workers, -(-self.encoder.batch_size // len(self.views)))
        coming: deque[tuple[int, Future[_Loaded | ImageError]]] = deque()
        with ThreadPoolExecutor(workers, thread_name_prefix="prolip-load") as pool:
            try:
                for index in indices:
                    coming.append((index, pool.submit(self._load, index)))
                    if len(coming) >= ahead:
                        first, future = coming.popleft()
                        yield first, future.result()
                for index, future in coming:
                    yield index, future.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _receive(self, index: int, loaded: _Loaded) -> None:
        self.keys[index] = loaded.key
        source = self.images[index]
        if loaded.state and isinstance(source, (str, os.PathLike)):
            self.read.append((os.fspath(source), loaded.state, loaded.key))
        for slot, row in loaded.rows.items():
            self.features[slot, index] = row
        self.waiting += [(index, slot, pixels) for slot, pixels in loaded.pixels.items()]

    def _encode(self, size: int) -> None:
        batch, self.waiting = self.waiting[:size], self.waiting[size:]
        rows = to_numpy(self.encoder.encode(np.stack([pixels for _, _, pixels in batch])))
        self.encoded += len(batch)
        for (index, slot, _), row in zip(batch, rows, strict=True):
            if not np.isfinite(row).all():
                raise InputError(
                    f"{self.encoder.name} gives NaN or infinite features for image "
                    f"{self._name(index)}: check the image, or use another device or model"
                )
            self.features[slot, index] = row
            self.unwritten.append((index, slot))
        if time.monotonic() - self.written_at >= _FLUSH_SECONDS:
            self._write()

    def _write(self) -> None:
        rows, self.unwritten = self.unwritten, []
        read, self.read = self.read, []
        self.written_at = time.monotonic()
        if self.space is None or self.store is None:
            return
        if rows:
            indices, slots = zip(*rows, strict=True)
            keys, views = [self.keys[index] for index in indices], [self.views[slot] for slot in slots]
            self.space.add(keys, views, self.features[list(slots), list(indices)])
        self.store.remember(read)


def _view(preprocess: Preprocess, image: Image.Image, key: bytes, view: int) -> Array:
    if view == 0:
        return preprocess.centre(image)
    seed = hashlib.sha256(key + view.to_bytes(4, "little")).digest()
    return preprocess.augment(image, random.Random(int.from_bytes(seed, "little")))
