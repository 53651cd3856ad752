"""Extraction on a Ray cluster: workers encode batches of images, the driver writes the store.

Each worker loads the encoder once. Rows are written as they arrive, so that an interrupted run resumes where
it stopped. The workers must be able to read the images at the same paths: a shared folder, or one machine.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

from prolip import encoders
from prolip.core.errors import InputError
from prolip.features.extract import Extraction, extract
from prolip.features.images import BadImage, ImageContent, NoImageLeft
from prolip.features.store import FeatureStore, Space
from prolip.io.environment import require
from prolip.io.files import file_state
from prolip.io.progress import Progress

_BATCH = 64
_CHUNK = 4096  # files that are looked up at a time


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
    missing, bad = _missing(store, space, names, views)
    known = len(names) - len(missing) - len(bad)
    encoded = 0

    def report(failed: list[tuple[str, str]]) -> None:
        if failed and not skip_bad:
            raise BadImage(*failed[0])
        if progress is not None:
            progress(known + encoded + len(bad), len(names))

    report(bad)
    with ray_cluster(ray, address) if missing else nullcontext():
        for result in _extractions(ray, (model, device), missing, views, workers):
            failed = result if isinstance(result, list) else result.bad
            if isinstance(result, Extraction):
                for slot, view in enumerate(views):
                    space.add(result.hashes, [view] * len(result.hashes), result.features[slot])
                encoded += len(result.kept)
            bad += failed
            report(failed)
    return RayExtraction(known, encoded, bad)


def _missing(
    store: FeatureStore, space: Space, paths: list[str], views: list[int]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the paths whose features the store lacks, and those that cannot be read."""
    missing: list[str] = []
    bad: list[tuple[str, str]] = []

    def read(path: str) -> ImageContent | BadImage | None:
        with suppress(OSError, ValueError):  # opening the file reports the error
            key = store.known(path, file_state(path))
            if key is not None and all(space.get(key, view) is not None for view in views):
                return None
        try:
            return replace(ImageContent.open(path, path), source=b"")
        except BadImage as error:
            return error

    with ThreadPoolExecutor(8) as pool:
        for start in range(0, len(paths), _CHUNK):
            chunk = paths[start : start + _CHUNK]
            states = []
            for path, content in zip(chunk, pool.map(read, chunk), strict=True):
                if isinstance(content, BadImage):
                    bad.append((path, content.reason))
                elif content is not None and content.state is not None:
                    states.append((path, content.state, content.key))
                    if any(space.get(content.key, view) is None for view in views):
                        missing.append(path)
            store.remember(states)
    return missing, bad


def _extractions(
    ray: Any,
    load: tuple[str, str],
    paths: list[str],
    views: list[int],
    workers: int | None,
) -> Iterator[Extraction | list[tuple[str, str]]]:
    """Yield the extraction of each batch, in any order; of a batch of bad images, their names and reasons."""
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

    def extract(self, paths: list[str]) -> Extraction | list[tuple[str, str]]:
        """Extract features of a batch; where no image can be read, return their names and reasons."""
        try:
            return extract(self.encoder, paths, self.views, skip_bad=True, workers=self.threads)
        except NoImageLeft as error:
            return error.bad


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
