"""Run the frozen tower over images, once.

A few threads read, hash and decode the next batch of images while the tower runs on the calling thread.
Images whose features are in the store are not decoded, and not even opened if their files have not changed
since they were last read. What is encoded is written batch by batch: an interruption loses one batch.

View 0 is the evaluation view. View v >= 1 is a random crop and flip, seeded by the image's content and v
alone: it is the same whatever else is in the run, and in whatever order.
"""

import hashlib
import os
import random
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
from PIL import Image

from prolip.core.arrays import Array, to_numpy
from prolip.core.errors import InputError, Parameter
from prolip.data.imageset import LazyImage
from prolip.encoders.base import Encoder
from prolip.encoders.preprocess import Preprocess
from prolip.features.images import ImageError, open_image
from prolip.features.store import FeatureStore
from prolip.io.environment import cores
from prolip.io.progress import Progress

_File = tuple[str, tuple[int, ...], bytes]  # path, state and SHA-256
_LOOKED_UP = 1000  # images that are looked up in the store at a time


@dataclass(frozen=True, eq=False)
class Extraction:
    """Features of images, and which images could not be read."""

    features: Array  # [V, n, width] float32, of the n images that could be read
    kept: list[int]  # their indices in the input
    hashes: list[bytes]  # their contents' SHA-256
    bad: list[tuple[str, str]]  # name and reason of each image that could not be read
    encoded: int  # views that the tower was run on; the rest came from the store

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
    if not len(images):
        raise InputError("no images to encode")
    job = _Job(encoder, images, views, store, bool(skip_bad))
    job.run(progress or (lambda done, total: None))
    if store is not None and store.problem:
        warnings.warn(f"features are not stored: {store.problem}", stacklevel=2)
    kept = sorted(job.keys)
    bad = [(error.name, error.reason) for _, error in sorted(job.bad.items())]
    if len(bad) > skip_bad * len(images):
        listed = "; ".join(f"{name}: {reason}" for name, reason in bad[:3])
        raise InputError(
            f"{len(bad)} of {len(images)} images cannot be read, more than {100 * skip_bad:.0f} %: repair or "
            "remove them, or skip them with ",
            Parameter("skip_bad", True),
            f": {listed}",
        )
    features = job.features[:, kept] if bad else job.features
    hashes = [job.keys[index] for index in kept]
    return Extraction(features, kept, hashes, bad, job.encoded)


def none_readable(bad: Sequence[tuple[str, str]]) -> InputError:
    """Return the error where no image is left; `bad` has the name and reason of each."""
    return InputError(f"none of the {len(bad)} images can be read; {bad[0][0]}: {bad[0][1]}")


@dataclass(eq=False)
class _Job:
    """The state of one extraction. Only `_load` runs on other threads."""

    encoder: Encoder
    images: Sequence[Any]
    views: Sequence[int]
    store: FeatureStore | None
    skip_bad: bool
    keys: dict[int, bytes] = field(default_factory=dict)  # by the index of the image
    bad: dict[int, ImageError] = field(default_factory=dict)
    encoded: int = 0

    def __post_init__(self) -> None:
        self.space = None if self.store is None else self.store.space(self.encoder)
        size = (len(self.views), len(self.images), self.encoder.width)
        self.features = np.empty(size, dtype=np.float32)

    def run(self, progress: Progress) -> None:
        """Take what is stored, load the rest in threads, and encode each batch while the next is loaded."""
        total = len(self.images)
        for start in range(0, total, _LOOKED_UP):
            if self.space is not None:
                some = self.images[start : start + _LOOKED_UP]
                for index, (key, rows) in self.space.of_files(some, self.views).items():
                    self.keys[start + index], self.features[:, start + index] = key, rows
                progress(len(self.keys), total)
        left = [index for index in range(total) if index not in self.keys]
        size = -(-self.encoder.batch_size // len(self.views))
        batches = [left[start : start + size] for start in range(0, len(left), size)]
        pool = ThreadPoolExecutor(min(16, max(2, cores())), thread_name_prefix="prolip-load")
        try:
            loading = pool.map(self._load, left[:size])
            for done, following in enumerate([*batches[1:], []][: len(batches)], 1):
                loaded = list(loading)
                loading = pool.map(self._load, following)
                waiting = [view for _, pixels in loaded for view in pixels]
                for start in range(0, len(waiting), self.encoder.batch_size):
                    self._encode(waiting[start : start + self.encoder.batch_size])
                if self.store is not None:
                    self.store.remember([file for files, _ in loaded for file in files])
                progress(total - max(0, len(left) - done * size), total)
        finally:
            pool.shutdown(cancel_futures=True)

    def _name(self, index: int) -> str:
        image = self.images[index]
        return str(image) if isinstance(image, (str, os.PathLike, LazyImage)) else f"number {index}"

    def _load(self, index: int) -> tuple[list[_File], list[tuple[int, int, Array]]]:
        """Read an image, and take its stored rows; return its file, if it has one, and pixels for the tower.

        Pixels are uint8 [S, S, 3], each with the index of the image and the place of the view.
        """
        try:
            opened = open_image(self.images[index], self._name(index))
            stored = {} if self.space is None else self.space.get([opened.key])
            decode = cache(partial(opened.decode, self.encoder.preprocess.sufficient_side))
            pixels = [
                (index, slot, _view(self.encoder.preprocess, decode(), opened.key, view))
                for slot, view in enumerate(self.views)
                if (opened.key, view) not in stored
            ]
        except ImageError as error:
            if not self.skip_bad:
                raise
            self.bad[index] = error
            return [], []
        for slot, view in enumerate(self.views):
            if (row := stored.get((opened.key, view))) is not None:
                self.features[slot, index] = row
        self.keys[index] = opened.key
        if opened.state is None:
            return [], pixels
        return [(os.fspath(self.images[index]), opened.state, opened.key)], pixels

    def _encode(self, batch: Iterable[tuple[int, int, Array]]) -> None:
        indices, slots, pixels = map(list, zip(*batch, strict=True))
        rows = to_numpy(self.encoder.encode(np.stack(pixels)))
        if not np.isfinite(rows).all():
            first = indices[int((~np.isfinite(rows)).any(axis=1).argmax())]
            raise InputError(
                f"{self.encoder.name} gives NaN or infinite features for image {self._name(first)}: "
                "check the image, or use another device or model"
            )
        self.features[slots, indices] = rows
        self.encoded += len(indices)
        if self.space is not None:
            keys, views = [self.keys[index] for index in indices], [self.views[slot] for slot in slots]
            self.space.add(keys, views, rows)


def _view(preprocess: Preprocess, image: Image.Image, key: bytes, view: int) -> Array:
    if view == 0:
        return preprocess.centre(image)
    seed = hashlib.sha256(key + view.to_bytes(4, "little")).digest()
    return preprocess.augment(image, random.Random(int.from_bytes(seed, "little")))
