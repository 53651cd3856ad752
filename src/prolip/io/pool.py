"""Worker processes for independent jobs: on this machine, or on a Ray cluster.

    with open_pool(processes=4) as pool:  # or open_pool(ray_address="auto")
        for result in pool.imap_unordered(function, jobs):
            ...

The interface is that of `multiprocessing.Pool`. The function is one of a module; jobs and results are pickled
on their way. Every worker computes with one thread, so that a result does not depend on where it was made.
"""

import importlib
import logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from prolip.core.errors import ProlipError
from prolip.io.environment import require

ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "NUMBA")}
_RETRIES = 3  # of a job whose worker on the cluster dies


class Pool(Protocol):
    """Something that runs a function on every job."""

    def imap_unordered(self, function: Callable[[Any], Any], jobs: Iterable[Any]) -> Iterator[Any]:
        """Yield the results as they come; the first error of a job is raised."""


@contextmanager
def open_pool(
    processes: int | None = None, ray_address: str | None = None, gpus: float = 0
) -> Iterator[Pool]:
    """Start worker processes, and stop them at the end; with one and no address, jobs run in this process.

    As `ray_address`, "local" starts a cluster on this machine, "auto" or "ray://HOST:PORT" joins one;
    `processes` None are as many as it has processors, `gpus` is what each of them takes.
    """
    if ray_address is not None:
        with _ray_pool(processes, ray_address, gpus) as pool:
            yield pool
    elif processes == 1:
        yield _ThisProcess()
    else:
        before = {name: os.environ.get(name) for name in ONE_THREAD}
        os.environ.update(ONE_THREAD)  # which the processes inherit
        try:
            workers = _LocalWorkers(processes)
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
        with workers.pool:  # whose end terminates the processes
            yield workers


class _ThisProcess:
    def imap_unordered(self, function: Callable[[Any], Any], jobs: Iterable[Any]) -> Iterator[Any]:
        return map(function, jobs)


class _LocalWorkers:
    """Processes on this machine. `multiprocessing.Pool` would wait forever for the job of one that died."""

    def __init__(self, processes: int | None) -> None:
        others = set(multiprocessing.active_children())
        self.pool = multiprocessing.get_context("spawn").Pool(processes, _ignore_interrupts)
        self._workers = set(multiprocessing.active_children()) - others

    def imap_unordered(self, function: Callable[[Any], Any], jobs: Iterable[Any]) -> Iterator[Any]:
        results = self.pool.imap_unordered(function, jobs)
        while True:
            try:
                yield results.next(timeout=1.0)
            except multiprocessing.TimeoutError:
                if codes := [worker.exitcode for worker in self._workers if worker.exitcode is not None]:
                    raise ProlipError(
                        f"a worker process ended with code {codes[0]}: start fewer if memory is short"
                    ) from None
            except StopIteration:
                return


class _RayWorkers:
    """Processes of a cluster. Ray's pool returns the errors of jobs, where Python's raises them."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def imap_unordered(self, function: Callable[[Any], Any], jobs: Iterable[Any]) -> Iterator[Any]:
        for result in self._pool.imap_unordered(function, jobs):
            if isinstance(result, Exception):
                raise getattr(result, "underlying", result)
            yield result


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the process that started this one, which ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _ray_pool(processes: int | None, address: str, gpus: float) -> Iterator[Pool]:
    """Join a cluster, or start one; one that this process has joined before stays."""
    ray = require("ray", "ray", "a cluster")
    started = not ray.is_initialized()
    if started:
        local = {"num_cpus": processes, "include_dashboard": False} if address == "local" else {}
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **local)
    try:
        workers = {
            "num_cpus": 1,
            "num_gpus": gpus,
            "max_restarts": _RETRIES,
            "max_task_retries": _RETRIES,
            "runtime_env": {"env_vars": ONE_THREAD},
        }
        module = importlib.import_module("ray.util.multiprocessing")
        with module.Pool(processes, ray_remote_args=workers) as pool:
            yield _RayWorkers(pool)
    finally:
        if started:
            ray.shutdown()
