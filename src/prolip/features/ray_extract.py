"""Extraction on a cluster: Ray Data hands paths to encoders, one driver writes the store.

Every worker loads the encoder once and encodes batches of pictures; rows come back and are written as they
come, so that an interrupted run goes on where it was. The pictures must be readable where the workers are, at
the same paths: a shared folder, or one machine.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from prolip import encoders
from prolip.core.errors import InputError
from prolip.features.extract import Progress, extract
from prolip.features.images import BadImage, NoImageLeft, Picture
from prolip.features.store import WAYS, FeatureStore, Space
from prolip.io.environment import MissingPackageError
from prolip.io.files import file_state

_BATCH = 64
_CHUNK = 4096  # files that are looked up at a time


@dataclass(frozen=True)
class RayExtraction:
    """What became of the pictures."""

    known: int  # pictures that the store had already
    encoded: int  # pictures that were encoded now
    bad: list[tuple[str, str]]  # path and reason of each that could not be read


def extract_on_ray(
    model: str,
    paths: Sequence[str | os.PathLike[str]],
    store: FeatureStore,
    *,
    views: Sequence[int] = (0,),
    address: str = "local",
    workers: int | None = None,
    device: str = "auto",
    skip_bad: bool = False,
    progress: Progress | None = None,
    exact_decode: bool = False,
) -> RayExtraction:
    """Encode pictures, which every worker can read, into a store on this machine, on a Ray cluster.

    `model` and `device` are those of `prolip.encoders.load`; "local" starts a cluster here, "auto" or
    "ray://HOST:PORT" joins one; so many `workers` run at a time, None is one for each of the cluster's
    processors (or GPUs). The other arguments are those of `extract`.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingPackageError("extraction on a cluster", "ray", "ray") from error
    names, views = [os.path.abspath(path) for path in paths], [int(view) for view in views]  # noqa: PTH100
    if not names:
        raise InputError("no images to encode")
    space = store.space(encoders.load(model, device), exact_decode)
    missing, bad = _missing(store, space, names, views)
    _refuse(bad, skip_bad)
    known, done = len(names) - len(missing) - len(bad), len(names) - len(missing)
    if progress is not None:
        progress(done, len(names))
    encoded = 0
    if missing:
        with _cluster(ray, address):
            encode = (model, device, views, exact_decode)
            for keys, ways, features, failed in _batches(ray, encode, missing, workers):
                for slot, view in enumerate(views):
                    if keys:
                        space.add(keys, [view] * len(keys) if view else ways, features[slot])
                bad += failed
                _refuse(failed, skip_bad)
                encoded += len(keys)
                if progress is not None:
                    progress(done + encoded + len(failed), len(names))
    return RayExtraction(known, encoded, bad)


def _missing(
    store: FeatureStore, space: Space, paths: list[str], views: list[int]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Paths whose features the store lacks, and those that cannot be read at all."""
    missing: list[str] = []
    bad: list[tuple[str, str]] = []

    def stored(path: str) -> Picture | BadImage | None:
        with suppress(OSError, ValueError):  # opening it will say why
            key = store.contents.get(path, file_state(path))
            if key is not None and all(space.get(key, view) is not None for view in views):
                return None
        try:
            return replace(Picture.open(path, path), source=b"")
        except BadImage as error:
            return error

    with ThreadPoolExecutor(8) as pool:
        for start in range(0, len(paths), _CHUNK):
            chunk = paths[start : start + _CHUNK]
            read = []
            for path, found in zip(chunk, pool.map(stored, chunk), strict=True):
                if isinstance(found, BadImage):
                    bad.append((path, found.reason))
                elif found is not None and found.state is not None:
                    read.append((path, found.state, found.key))
                    if any(space.get(found.key, view) is None for view in views):
                        missing.append(path)
            store.contents.add(read)
    return missing, bad


# Keys, numbers of view 0 (see `store.WAYS`), features [V, n, width], and what could not be read.
EncodedBatch = tuple[list[bytes], list[int], np.ndarray, list[tuple[str, str]]]


def _batches(
    ray: Any, encode: tuple[str, str, list[int], bool], paths: list[str], workers: int | None
) -> Iterator[EncodedBatch]:
    resources = ray.cluster_resources()
    on_gpu = encode[1] != "cpu" and resources.get("GPU", 0) > 0
    count = workers or max(1, int(resources["GPU" if on_gpu else "CPU"]) - (0 if on_gpu else 1))
    blocks = max(count, -(-len(paths) // (4 * _BATCH)))
    rows = ray.data.from_items(
        [{"path": path} for path in paths], override_num_blocks=min(blocks, len(paths))
    )
    encoded = rows.map_batches(
        _Encode,
        fn_constructor_args=(*encode, None if on_gpu else 0),
        batch_size=_BATCH,
        batch_format="numpy",
        compute=ray.data.ActorPoolStrategy(size=min(count, len(paths))),
        num_gpus=1 if on_gpu else 0,
    )
    for batch in encoded.iter_batches(batch_size=None, batch_format="numpy"):
        sound = np.asarray([not reason for reason in batch["reason"]], dtype=bool)
        failed = [(str(batch["path"][i]), str(batch["reason"][i])) for i in np.flatnonzero(~sound)]
        keys = [row.tobytes() for row in np.asarray(batch["key"])[sound]]
        features = np.asarray(batch["features"])[sound]  # [n, V, width]
        yield keys, np.asarray(batch["way"])[sound].tolist(), features.transpose(1, 0, 2), failed


class _Encode:
    """One encoder on one worker; on a processor it runs on one thread, as Ray counts processors."""

    def __init__(
        self, model: str, device: str, views: list[int], exact_decode: bool, threads: int | None
    ) -> None:
        self.encoder, self.views = encoders.load(model, device), views
        self.exact_decode, self.threads = exact_decode, threads

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Keys [n, 32], numbers of view 0, features [n, V, width] and the reason why not, for each path."""
        paths = [str(path) for path in batch["path"]]
        count = len(paths)
        made: dict[str, Any] = {
            "path": paths,
            "key": np.zeros((count, 32), np.uint8),
            "way": np.zeros(count, np.int64),
            "features": np.zeros((count, len(self.views), self.encoder.width), np.float32),
            "reason": [""] * count,
        }
        try:
            found = extract(
                self.encoder,
                paths,
                self.views,
                skip_bad=True,
                workers=self.threads,
                exact_decode=self.exact_decode,
            )
        except NoImageLeft as error:
            return {**made, "reason": [reason for _, reason in error.bad]}
        made["key"][found.kept] = np.frombuffer(b"".join(found.hashes), np.uint8).reshape(-1, 32)
        made["way"][found.kept] = [WAYS[self.exact_decode] * (key in found.large) for key in found.hashes]
        made["features"][found.kept] = found.features.transpose(1, 0, 2)
        for name, reason in found.bad:
            made["reason"][paths.index(name)] = reason
        return made


def _refuse(bad: list[tuple[str, str]], skip_bad: bool) -> None:
    if bad and not skip_bad:
        raise BadImage(*bad[0])


@contextmanager
def _cluster(ray: Any, address: str) -> Iterator[None]:
    """Join or start a cluster; leave one that was there before as it is."""
    started = not ray.is_initialized()
    if started:
        ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        yield
    finally:
        if started:
            ray.shutdown()
