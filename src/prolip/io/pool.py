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
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from prolip.core.errors import ProlipError
from prolip.io.environment import require

ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "NUMBA")}
_RETRIES = 3  # of a job whose worker on the cluster dies


@dataclass(frozen=True)
class Pool:
    """Runs a function on every job; this one in this process.

    `imap_unordered` yields the results as they come, and raises the first error of a job.
    """

    imap_unordered: Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]] = map


def _in_processes(executor: Executor, function: Callable[[Any], Any], jobs: Iterable[Any]) -> Iterator[Any]:
    """Use processes on this machine; `multiprocessing.Pool` would wait forever for the job of a dead one."""
    try:
        for future in as_completed([executor.submit(function, job) for job in jobs]):
            yield future.result()
    except BrokenProcessPool as error:
        raise ProlipError("a worker process was killed: start fewer if memory is short") from error


def _on_ray(pool: Any, function: Callable[[Any], Any], jobs: Iterable[Any]) -> Iterator[Any]:
    """Use processes of a cluster. Ray's pool returns the errors of jobs, where Python's raises them."""
    for result in pool.imap_unordered(function, jobs):
        if isinstance(result, Exception):
            raise getattr(result, "underlying", result)
        yield result


@contextmanager
def open_pool(processes: int | None = None, ray_address: str | None = None) -> Iterator[Pool]:
    """Start worker processes, and stop them at the end; with one and no address, jobs run in this process.

    As `ray_address`, "local" starts a cluster on this machine, "auto" or "ray://HOST:PORT" joins one;
    `processes` None are as many as it has processors.
    """
    if ray_address is not None:
        with _ray_pool(processes, ray_address) as pool:
            yield pool
        return
    if processes == 1:
        yield Pool()
        return
    others, before = multiprocessing.active_children(), dict(os.environ)
    os.environ.update(ONE_THREAD)  # which the processes inherit
    executor = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _ignore_interrupts)
    try:
        yield Pool(partial(_in_processes, executor))
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        for worker in set(multiprocessing.active_children()).difference(others):
            worker.terminate()
        for name in ONE_THREAD:
            os.environ.pop(name)
        os.environ.update(before)


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the process that started this one, which ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _ray_pool(processes: int | None, address: str) -> Iterator[Pool]:
    """Join a cluster, or start one; one that this process has joined before stays."""
    ray = require("ray", "ray", "a cluster")
    started = not ray.is_initialized()
    if started:
        local = {"num_cpus": processes, "include_dashboard": False} if address == "local" else {}
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **local)
    workers = {
        "num_cpus": 1,
        "max_restarts": _RETRIES,
        "max_task_retries": _RETRIES,
        "runtime_env": {"env_vars": ONE_THREAD},
    }
    try:
        module = importlib.import_module("ray.util.multiprocessing")
        with module.Pool(processes, ray_remote_args=workers) as pool:
            yield Pool(partial(_on_ray, pool))
    finally:
        if started:
            ray.shutdown()
