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
from threading import Lock
from typing import Any

import numpy as np
from PIL import Image

from prolip.core.arrays import Array, to_numpy
from prolip.core.errors import InputError, ModelError, ProlipError
from prolip.data.imageset import LazyImage
from prolip.encoders.base import Encoder
from prolip.encoders.preprocess import Preprocess
from prolip.features.images import ImageError, NoImagesError, open_image
from prolip.features.store import FeatureStore, Space
from prolip.io.environment import cores
from prolip.io.files import file_state
from prolip.io.progress import Progress

_FLUSH_ROWS = 8192
_FLUSH_SECONDS = 10.0


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
    space = None if store is None else store.space(encoder)
    job = _Job(encoder, images, views, store, space, skip_bad, progress or (lambda done, total: None))
    try:
        job.run(min(16, max(2, cores())) if workers is None else workers)
    finally:
        for problem in store.take_problems() if store is not None else ():
            warnings.warn(problem, stacklevel=2)
    return job.result(time.perf_counter() - started)


@dataclass(frozen=True, eq=False)
class _Loaded:
    """The output of a loader: rows from the store and pixels for the tower, by index in `views`."""

    index: int
    key: bytes
    state: tuple[int, ...] | None = None  # of its file, if that was read
    rows: dict[int, Array] = field(default_factory=dict)  # [width]
    pixels: dict[int, Array] = field(default_factory=dict)  # uint8 [S, S, 3]


@dataclass(eq=False)
class _Job:
    """The state of one extraction. Only `_load` runs on other threads."""

    encoder: Encoder
    images: Sequence[Any]
    views: list[int]
    store: FeatureStore | None
    space: Space | None
    skip_bad: bool | float
    progress: Progress

    def __post_init__(self) -> None:
        shape = (len(self.views), len(self.images), self.encoder.width)
        self.features = np.empty(shape, dtype=np.float32)
        self.keys: dict[int, bytes] = {}
        self.bad: dict[int, ImageError] = {}
        self.encoded = 0
        self.first: dict[bytes, int] = {}  # content: the first image that has it
        self.lock = Lock()
        self.waiting: list[tuple[_Loaded, int]] = []  # image and index in `views`, to be encoded
        self.unwritten: list[tuple[int, int]] = []  # image and index in `views`, to be written
        self.read: list[tuple[str, tuple[int, ...], bytes]] = []  # path, state and content of files
        self.written_at = time.monotonic()

    def run(self, workers: int) -> None:
        size, total = self.encoder.batch_size, len(self.images)
        # Enough images ahead to fill a batch; with many views an image has many pixels, so fewer of them.
        ahead = max(workers, -(-size // len(self.views)))
        try:
            with closing(self._outcomes(workers, ahead)) as outcomes:
                for index, outcome in enumerate(outcomes):
                    self._receive(index, outcome)
                    while len(self.waiting) >= size:
                        self._encode(size)
                    self.progress(index + 1 - len({loaded.index for loaded, _ in self.waiting}), total)
            if self.waiting:
                self._encode(size)
                self.progress(total, total)
        except BaseException:
            # Encoded rows are written, also on Ctrl-C; the first error is the one to report.
            with suppress(ProlipError):
                self._write()
            raise
        self._write()

    def result(self, seconds: float) -> Extraction:
        for index, key in self.keys.items():
            first = self.first[key]
            if first in self.bad:
                self.bad[index] = ImageError(self._name(index), self.bad[first].reason)
            elif first != index:
                self.features[:, index] = self.features[:, first]
        kept = [index for index in range(len(self.images)) if index not in self.bad]
        bad = [(self.bad[index].name, self.bad[index].reason) for index in sorted(self.bad)]
        if not kept:
            raise NoImagesError(bad)
        if len(bad) > self.skip_bad * len(self.images):
            listed = "; ".join(f"{name}: {reason}" for name, reason in bad[:3])
            raise InputError(
                f"{len(bad)} of {len(self.images)} images cannot be read, more than "
                f"{100 * self.skip_bad:.0f} %: repair or remove them ({listed})"
            )
        features = self.features if not bad else self.features[:, kept]
        hashes = [self.keys[index] for index in kept]
        return Extraction(features, kept, hashes, bad, self.encoded, seconds)

    def _name(self, index: int) -> str:
        image = self.images[index]
        return str(image) if isinstance(image, (str, os.PathLike, LazyImage)) else f"number {index}"

    def _stored(self, index: int) -> _Loaded | None:
        """Return an image whose content and features are known without opening its file."""
        source = self.images[index]
        if self.store is None or not isinstance(source, (str, os.PathLike)):
            return None
        with suppress(OSError, ValueError):  # opening the file reports the error
            key = self.store.known(os.fspath(source), file_state(source))
            if key is not None and len(rows := self._rows(key)) == len(self.views):
                with self.lock:
                    self.first.setdefault(key, index)
                return _Loaded(index, key, rows=rows)
        return None

    def _load(self, index: int) -> _Loaded | ImageError:
        """Read an image; add rows from the store, and pixels for the rest, unless it is a copy."""
        try:
            with open_image(self.images[index], self._name(index)) as opened:
                with self.lock:
                    first = self.first.setdefault(opened.key, index)
                if first != index:
                    return _Loaded(index, opened.key, opened.state)
                loaded = _Loaded(index, opened.key, opened.state, self._rows(opened.key))
                if len(loaded.rows) < len(self.views):
                    preprocess = self.encoder.preprocess
                    image = opened.decode(preprocess.sufficient_side)
                    for slot in sorted(set(range(len(self.views))) - set(loaded.rows)):
                        loaded.pixels[slot] = _view(preprocess, image, opened.key, self.views[slot])
                return loaded
        except ImageError as bad:
            return bad

    def _rows(self, key: bytes) -> dict[int, Array]:
        """Return the stored rows of an image, by index in `views`."""
        found = ((slot, self.space.get(key, view)) for slot, view in enumerate(self.views) if self.space)
        return {slot: row for slot, row in found if row is not None}

    def _outcomes(self, workers: int, ahead: int) -> Generator[_Loaded | ImageError, None, None]:
        """Yield every image in order; those that are not stored are loaded by threads, `ahead` at most."""
        if not workers:
            yield from (self._stored(index) or self._load(index) for index in range(len(self.images)))
            return
        coming: deque[Future[_Loaded | ImageError]] = deque()
        with ThreadPoolExecutor(workers, thread_name_prefix="prolip-load") as pool:
            try:
                for index in range(len(self.images)):
                    if (stored := self._stored(index)) is None:
                        coming.append(pool.submit(self._load, index))
                    else:
                        coming.append(Future())
                        coming[-1].set_result(stored)
                    if len(coming) >= ahead:
                        yield coming.popleft().result()
                while coming:
                    yield coming.popleft().result()
            finally:
                for future in coming:
                    future.cancel()

    def _receive(self, index: int, outcome: _Loaded | ImageError) -> None:
        if isinstance(outcome, ImageError):
            if not self.skip_bad:
                # An earlier copy of this content may have left the decoding to this one.
                copies = (i for i, key in self.keys.items() if self.first[key] == index)
                raise type(outcome)(self._name(min(copies, default=index)), outcome.reason)
            self.bad[index] = outcome
            return
        self.keys[index] = outcome.key
        source = self.images[index]
        if self.store and outcome.state and isinstance(source, (str, os.PathLike)):
            self.read.append((os.fspath(source), outcome.state, outcome.key))
        for slot, row in outcome.rows.items():
            self.features[slot, index] = row
        self.waiting += [(outcome, slot) for slot in outcome.pixels]

    def _encode(self, size: int) -> None:
        batch, self.waiting = self.waiting[:size], self.waiting[size:]
        pixels = np.stack([loaded.pixels.pop(slot) for loaded, slot in batch])  # [B, S, S, 3]
        rows = to_numpy(self.encoder.encode(pixels))
        if rows.shape != (len(batch), self.encoder.width):
            raise ModelError(
                f"{self.encoder.name} gave features of shape {list(rows.shape)}, "
                f"expected [{len(batch)}, {self.encoder.width}]"
            )
        self.encoded += len(batch)
        for (loaded, slot), row in zip(batch, rows, strict=True):
            if not np.isfinite(row).all():
                raise InputError(
                    f"{self.encoder.name} gives NaN or infinite features for image "
                    f"{self._name(loaded.index)}: check the image, or use another device or model"
                )
            self.features[slot, loaded.index] = row
            self.unwritten.append((loaded.index, slot))
        if len(self.unwritten) >= _FLUSH_ROWS or time.monotonic() - self.written_at >= _FLUSH_SECONDS:
            self._write()

    def _write(self) -> None:
        rows, self.unwritten = self.unwritten, []
        read, self.read = self.read, []
        if self.space is None or self.store is None:
            return
        if rows:
            indices, slots = zip(*rows, strict=True)
            keys = [self.keys[index] for index in indices]
            views = [self.views[slot] for slot in slots]
            self.space.add(keys, views, self.features[list(slots), list(indices)])
        self.store.remember(read)
        self.written_at = time.monotonic()


def _view(preprocess: Preprocess, image: Image.Image, key: bytes, view: int) -> Array:
    if view == 0:
        return preprocess.centre(image)
    seed = hashlib.sha256(key + view.to_bytes(4, "little")).digest()
    return preprocess.augment(image, random.Random(int.from_bytes(seed, "little")))
