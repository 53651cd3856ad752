"""Extraction on a Ray cluster: workers encode batches of images, the driver writes the store.

Each worker loads the encoder once. Rows are written as they arrive, so that an interrupted run resumes where
it stopped. The workers must be able to read the images at the same paths: a shared folder, or one machine.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from prolip import encoders
from prolip.core.errors import InputError
from prolip.features.extract import Extraction, extract
from prolip.features.images import ImageError, NoImagesError
from prolip.features.store import FeatureStore, Space
from prolip.io.environment import require
from prolip.io.files import file_state
from prolip.io.progress import Progress

_BATCH = 64


@dataclass(frozen=True)
class RayExtraction:
    """How many images were in the store, how many were encoded, and which could not be read."""

    known: int
    encoded: int
    bad: list[tuple[str, str]]  # path and reason


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
) -> RayExtraction:
    """Encode images on a Ray cluster into a store on this machine.

    `model` and `device` are those of `prolip.encoders.load`; "local" starts a cluster here, "auto" or
    "ray://HOST:PORT" joins one. `workers` run in parallel; None is one for each of the cluster's processors
    (or GPUs). The other arguments are those of `extract`.
    """
    ray = require("ray", "ray", "extraction on a cluster")
    names, views = [os.path.abspath(path) for path in paths], [int(view) for view in views]  # noqa: PTH100
    if not names:
        raise InputError("no images to encode")
    space = store.space(encoders.load(model, device))
    states = {name: _state(name) for name in names}
    missing = [name for name in names if not _is_stored(store, space, name, states[name], views)]
    known, encoded = len(names) - len(missing), 0
    bad: list[tuple[str, str]] = []
    with ray_cluster(ray, address) if missing else nullcontext():
        for batch, result in _extractions(ray, (model, device), missing, views, workers):
            failed = result if isinstance(result, list) else result.bad
            if isinstance(result, Extraction):
                for slot, view in enumerate(views):
                    space.add(result.hashes, [view] * len(result.hashes), result.features[slot])
                kept = [batch[i] for i in result.kept]
                found = zip(kept, result.hashes, strict=True)
                store.remember([(name, states[name], key) for name, key in found if states[name]])
                encoded += len(kept)
            bad += failed
            if failed and not skip_bad:
                raise ImageError(*failed[0])
            if progress is not None:
                progress(known + encoded + len(bad), len(names))
    return RayExtraction(known, encoded, bad)


def _state(path: str) -> tuple[int, ...]:
    """Return the state of a file; of one that cannot be read, which a worker reports, nothing."""
    with suppress(OSError, ValueError):
        return file_state(path)
    return ()


def _is_stored(
    store: FeatureStore, space: Space, path: str, state: tuple[int, ...], views: list[int]
) -> bool:
    """Whether the store has the features of a file, which is not opened for that."""
    key = store.known(path, state)
    return key is not None and all(space.get(key, view) is not None for view in views)


def _extractions(
    ray: Any, load: tuple[str, str], paths: list[str], views: list[int], workers: int | None
) -> Iterator[tuple[list[str], Extraction | list[tuple[str, str]]]]:
    """Yield batches in any order, each with its extraction; if no image can be read, with the reasons."""
    if not paths:
        return
    resources = ray.cluster_resources()
    on_gpu = load[1] != "cpu" and resources.get("GPU", 0) > 0
    count = workers or max(1, int(resources["GPU" if on_gpu else "CPU"]) - (0 if on_gpu else 1))
    batches = [paths[start : start + _BATCH] for start in range(0, len(paths), _BATCH)]
    # A worker that is killed starts again, and so does its batch.
    options = {"num_gpus" if on_gpu else "num_cpus": 1, "max_restarts": -1, "max_task_retries": -1}
    actor = ray.remote(**options)(_Encode)
    threads = None if on_gpu else 0
    actors = [actor.remote(*load, views, threads) for _ in range(min(count, len(batches)))]
    pool = require("ray.util", "ray").ActorPool(actors)
    yield from pool.map_unordered(lambda worker, batch: worker.extract.remote(batch), batches)


class _Encode:
    """One encoder on one worker; on a processor it runs on one thread, as Ray counts processors."""

    def __init__(self, model: str, device: str, views: list[int], threads: int | None) -> None:
        self.encoder, self.views, self.threads = encoders.load(model, device), views, threads

    def extract(self, paths: list[str]) -> tuple[list[str], Extraction | list[tuple[str, str]]]:
        """Return a batch with its features; where no image can be read, with their names and reasons."""
        try:
            return paths, extract(self.encoder, paths, self.views, skip_bad=True, workers=self.threads)
        except NoImagesError as error:
            return paths, error.bad


@contextmanager
def ray_cluster(ray: Any, address: str, **options: Any) -> Iterator[None]:
    """Join a cluster, or start one with these options of `ray.init`; an initialised one stays."""
    started = not ray.is_initialized()
    if started:
        quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
        ray.init(address=address, **quiet, **options)
    try:
        yield
    finally:
        if started:
            ray.shutdown()
