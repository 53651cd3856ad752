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
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from prolip.core.arrays import Array, to_numpy
from prolip.core.errors import InputError, ModelError, Parameter, ProlipError
from prolip.data.imageset import LazyImage
from prolip.encoders.base import Encoder
from prolip.encoders.preprocess import Preprocess
from prolip.features.images import ImageError, NoImagesError, open_image
from prolip.features.store import FeatureStore
from prolip.io.environment import cores
from prolip.io.files import file_state
from prolip.io.progress import Progress

_FLUSH_ROWS = 8192
_FLUSH_SECONDS = 10.0
_LOOKED_UP = 1000  # images that are looked up in the store at a time


@dataclass(frozen=True, eq=False)
class Extraction:
    """Features of images, and which images could not be read."""

    features: Array  # [V, n, width] float32, of the n images that could be read
    kept: list[int]  # their indices in the input
    hashes: list[bytes]  # their contents' SHA-256
    bad: list[tuple[str, str]]  # name and reason of each image that could not be read
    encoded: int  # views that the tower was run on; the rest came from the store, or were copies
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
    workers: int | None = None,
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
    workers
        Loader threads; by default one per core, 2 to 16. With 0 everything runs on this thread.
    """
    started = time.perf_counter()
    views = [int(view) for view in views]
    if not views or min(views) < 0 or len(set(views)) != len(views):
        raise InputError(f"views must be different numbers from 0 on, got {views}")
    if not len(images):
        raise InputError("no images to encode")
    job = _Job(encoder, images, views, store, progress or (lambda done, total: None))
    job.run(min(16, max(2, cores())) if workers is None else workers, bool(skip_bad))
    if store is not None and store.problem:
        warnings.warn(f"features are not stored: {store.problem}", stacklevel=2)
    return job.result(skip_bad, time.perf_counter() - started)


@dataclass(frozen=True, eq=False)
class _Loaded:
    """The output of a loader: rows from the store and pixels for the tower, by index in `views`."""

    key: bytes
    state: tuple[int, ...] | None  # of its file, if it has one
    rows: dict[int, Array] = field(default_factory=dict)  # [width]
    pixels: dict[int, Array] = field(default_factory=dict)  # uint8 [S, S, 3]


class _Job:
    """The state of one extraction. Only `_load` runs on other threads."""

    def __init__(
        self,
        encoder: Encoder,
        images: Sequence[Any],
        views: list[int],
        store: FeatureStore | None,
        progress: Progress,
    ) -> None:
        self.encoder, self.images, self.views, self.store = encoder, images, views, store
        self.space = None if store is None else store.space(encoder)
        self.progress = progress
        self.features = np.empty((len(views), len(images), encoder.width), dtype=np.float32)
        self.keys: dict[int, bytes] = {}
        self.bad: dict[int, ImageError] = {}
        self.encoded = 0
        self.first: dict[bytes, int] = {}  # content: the first image that has it
        self.waiting: list[tuple[int, int, Array]] = []  # image, index in `views`, and pixels to encode
        self.unwritten: list[tuple[int, int]] = []  # image and index in `views`
        self.read: list[tuple[str, tuple[int, ...], bytes]] = []  # path, state and content of files
        self.written_at = time.monotonic()

    def run(self, workers: int, skip_bad: bool) -> None:
        """Take what is stored, load the rest in threads, and encode it in batches."""
        for start in range(0, len(self.images) if self.store else 0, _LOOKED_UP):
            self._take_stored(range(start, min(start + _LOOKED_UP, len(self.images))))
            self.progress(len(self.keys), len(self.images))
        size, total, stored = self.encoder.batch_size, len(self.images), len(self.keys)
        left = [index for index in range(total) if index not in self.keys]
        # Enough images ahead to fill a batch; with many views an image has many pixels, so fewer of them.
        ahead = max(workers, -(-size // len(self.views)))
        try:
            with closing(self._loaded(left, workers, ahead)) as outcomes:
                for done, (index, outcome) in enumerate(outcomes, start=stored + 1):
                    self._receive(index, outcome, skip_bad)
                    while len(self.waiting) >= size:
                        self._encode(size)
                    self.progress(done - len({index for index, _, _ in self.waiting}), total)
            if self.waiting:
                self._encode(size)
                self.progress(total, total)
        except BaseException:
            # Encoded rows are written, also on Ctrl-C; the first error is the one to report.
            with suppress(ProlipError):
                self._write()
            raise
        self._write()

    def result(self, skip_bad: bool | float, seconds: float) -> Extraction:
        """Return the features of the images that could be read."""
        for index, key in self.keys.items():
            if (first := self.first.get(key, index)) != index:
                self.features[:, index] = self.features[:, first]
        kept = [index for index in range(len(self.images)) if index not in self.bad]
        bad = [(self.bad[index].name, self.bad[index].reason) for index in sorted(self.bad)]
        if not kept:
            raise NoImagesError(bad)
        if len(bad) > skip_bad * len(self.images):
            listed = "; ".join(f"{name}: {reason}" for name, reason in bad[:3])
            raise InputError(
                f"{len(bad)} of {len(self.images)} images cannot be read, more than "
                f"{100 * skip_bad:.0f} %: repair or remove them, or skip them with ",
                Parameter("skip_bad", True),
                f" ({listed})",
            )
        features = self.features if not bad else self.features[:, kept]
        hashes = [self.keys[index] for index in kept]
        return Extraction(features, kept, hashes, bad, self.encoded, seconds)

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
                rows = {} if self.space is None else self.space.get([opened.key])
                found = {
                    slot: rows[opened.key, view]
                    for slot, view in enumerate(self.views)
                    if (opened.key, view) in rows
                }
                loaded = _Loaded(opened.key, opened.state, found)
                if len(loaded.rows) < len(self.views):
                    preprocess = self.encoder.preprocess
                    image = opened.decode(preprocess.sufficient_side)
                    for slot in sorted(set(range(len(self.views))) - set(loaded.rows)):
                        loaded.pixels[slot] = _view(preprocess, image, opened.key, self.views[slot])
                return loaded
        except ImageError as bad:
            return bad

    def _loaded(
        self, indices: Sequence[int], workers: int, ahead: int
    ) -> Generator[tuple[int, _Loaded | ImageError], None, None]:
        """Yield images in order, loaded by threads, `ahead` at most."""
        if not workers:
            yield from ((index, self._load(index)) for index in indices)
            return
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
                for _, future in coming:
                    future.cancel()

    def _receive(self, index: int, outcome: _Loaded | ImageError, skip_bad: bool) -> None:
        if isinstance(outcome, ImageError):
            if not skip_bad:
                raise outcome
            self.bad[index] = outcome
            return
        self.keys[index] = outcome.key
        source = self.images[index]
        if outcome.state and isinstance(source, (str, os.PathLike)):
            self.read.append((os.fspath(source), outcome.state, outcome.key))
        if self.first.setdefault(outcome.key, index) != index:
            return  # a copy, whose features are those of the first
        for slot, row in outcome.rows.items():
            self.features[slot, index] = row
        self.waiting += [(index, slot, pixels) for slot, pixels in outcome.pixels.items()]

    def _encode(self, size: int) -> None:
        batch, self.waiting = self.waiting[:size], self.waiting[size:]
        rows = to_numpy(self.encoder.encode(np.stack([pixels for _, _, pixels in batch])))
        if rows.shape != (len(batch), self.encoder.width):
            raise ModelError(
                f"{self.encoder.name} gave features of shape {list(rows.shape)}, "
                f"expected [{len(batch)}, {self.encoder.width}]"
            )
        self.encoded += len(batch)
        for (index, slot, _), row in zip(batch, rows, strict=True):
            if not np.isfinite(row).all():
                raise InputError(
                    f"{self.encoder.name} gives NaN or infinite features for image "
                    f"{self._name(index)}: check the image, or use another device or model"
                )
            self.features[slot, index] = row
            self.unwritten.append((index, slot))
        if len(self.unwritten) >= _FLUSH_ROWS or time.monotonic() - self.written_at >= _FLUSH_SECONDS:
            self._write()

    def _write(self) -> None:
        rows, self.unwritten = self.unwritten, []
        read, self.read = self.read, []
        self.written_at = time.monotonic()
        if self.space is None or self.store is None:
            return
        if rows:
            indices, slots = zip(*rows, strict=True)
            keys = [self.keys[index] for index in indices]
            views = [self.views[slot] for slot in slots]
            self.space.add(keys, views, self.features[list(slots), list(indices)])
        self.store.remember(read)


def _view(preprocess: Preprocess, image: Image.Image, key: bytes, view: int) -> Array:
    if view == 0:
        return preprocess.centre(image)
    seed = hashlib.sha256(key + view.to_bytes(4, "little")).digest()
    return preprocess.augment(image, random.Random(int.from_bytes(seed, "little")))
