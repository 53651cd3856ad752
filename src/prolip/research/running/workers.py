"""Workers that run jobs: processes on this machine, tasks of a Ray cluster, or this process itself.

A pool has a `capacity` and a method `submit`, which returns a future of (result, error, seconds). The future
fails if the worker died. Each run has one thread, so that its result is the same wherever it runs.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np

from prolip.core import ProlipError
from prolip.core.arrays import Array
from prolip.features.ray_extract import ray_cluster
from prolip.io.environment import require
from prolip.research.protocols.encoded_dataset import EncodedDataset
from prolip.research.protocols.protocols import PROTOCOLS
from prolip.research.protocols.run import Run
from prolip.research.running.encoded_file import read_encoded
from prolip.research.running.result_key import runs_a_tower
from prolip.solvers.threads import single_thread

_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "NUMBA")}
_OPEN_FILES = 16  # datasets that a worker keeps mapped
_RAY_RETRIES = 3
_RAY_TASKS_PER_CPU = 2  # one runs, one waits

RunOutcome = tuple["dict[str, Any] | None", "str | None", float]  # the result or an error, and seconds


class Job(NamedTuple):
    """A run with the key of its result, and a file for each of its datasets."""

    key: str
    run: Run
    files: tuple[str, ...]


class JobPool(Protocol):
    """Something that runs jobs."""

    @property
    def capacity(self) -> int:
        """The number of jobs that it takes at a time."""

    def submit(self, job: Job) -> Future[RunOutcome]:
        """Start a job, and return the future of its result."""


def execute(run: Run, datasets: Sequence[EncodedDataset]) -> RunOutcome:
    """Execute a run on its datasets; errors become part of the outcome."""
    started = time.perf_counter()
    try:
        if runs_a_tower(run.method, run.protocol):
            _limit_torch_threads()
        source, *targets = datasets
        with single_thread():
            result, error = PROTOCOLS[run.protocol](source, run, *([targets] if targets else [])), None
    except ProlipError as wrong:  # the message is enough
        result, error = None, f"{type(wrong).__name__}: {wrong}"
    except Exception:
        result, error = None, traceback.format_exc()
    return result, error, time.perf_counter() - started


def execute_job(run: str, files: Sequence[str], device: str, contents: Sequence[Array] = ()) -> RunOutcome:
    """Execute a run given as JSON; `contents` are the bytes of its files where these cannot be opened."""
    try:
        if contents:
            datasets = [read_encoded(content, device) for content in contents]
        else:
            datasets = [_read_once(file, device) for file in files]
    except ProlipError as error:
        return None, f"{type(error).__name__}: {error}", 0.0
    return execute(Run.from_json(run), datasets)


_read_once = functools.lru_cache(maxsize=_OPEN_FILES)(read_encoded)


def _limit_torch_threads() -> None:
    with contextlib.suppress(ImportError):  # a run that needs torch raises the error itself
        import torch

        torch.set_num_threads(1)


class ThisProcess:
    """Runs jobs in this process, one after the other."""

    capacity = 1

    def __init__(self, device: str = "auto") -> None:
        self._device = device

    def submit(self, job: Job) -> Future[RunOutcome]:
        """Run a job to its end, and return its outcome as a finished future."""
        future: Future[RunOutcome] = Future()
        future.set_result(execute_job(job.run.to_json(), job.files, self._device))
        return future


class Processes:
    """Runs jobs in worker processes.

    Each worker is an executor of its own: if it dies, only its run is lost, and another one is started.
    """

    def __init__(self, count: int, device: str = "auto") -> None:
        self.capacity, self._device = count, device
        self._idle: list[ProcessPoolExecutor] = []
        self._busy: dict[Future[RunOutcome], ProcessPoolExecutor] = {}

    def __enter__(self) -> Processes:
        self._others = set(multiprocessing.active_children())
        return self

    def __exit__(self, *_: object) -> None:
        for executor in (*self._idle, *self._busy.values()):
            executor.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - self._others:
            process.terminate()

    def submit(self, job: Job) -> Future[RunOutcome]:
        """Give a job to an idle worker, or to a new one."""
        for future in [future for future in self._busy if future.done()]:
            executor = self._busy.pop(future)
            if future.exception() is None:
                self._idle.append(executor)
        if self._idle:
            executor = self._idle.pop()
        else:
            context = multiprocessing.get_context("spawn")
            executor = ProcessPoolExecutor(1, context, _start_worker)
        with _environment(_ONE_THREAD):  # the first job starts the process
            future = executor.submit(execute_job, job.run.to_json(), job.files, self._device)
        self._busy[future] = executor
        return future


def _start_worker() -> None:
    """Ignore Ctrl-C, which the runner handles, and end with the runner, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    runner = multiprocessing.parent_process()

    def wait() -> None:
        if runner is not None:
            runner.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables, which a new process inherits, inside the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


class RayPool:
    """Runs jobs on a Ray cluster.

    Datasets are sent once, into the cluster's object store (as arrays, which workers map), so that workers
    need none of our files. Ray restarts the run of a worker that dies.

    As `address`, "local" starts a cluster here, with so many `cpus` (None: all); "auto", or "ray://HOST:PORT",
    joins one.
    """

    def __init__(self, address: str, cpus: int | None = None, device: str = "auto") -> None:
        self._ray = require("ray", "ray", "a cluster")
        self._address, self._cpus, self._device = address, cpus, device
        self._sent: dict[str, Any] = {}
        self._running: dict[Future[RunOutcome], Any] = {}

    def __enter__(self) -> RayPool:
        here = {"num_cpus": self._cpus} if self._address == "local" else {}
        self._cluster = ray_cluster(self._ray, self._address, **here)
        self._cluster.__enter__()
        environment = {"env_vars": _ONE_THREAD}
        remote = self._ray.remote(num_cpus=1, max_retries=_RAY_RETRIES, runtime_env=environment)
        self._task = remote(_execute_on_ray)
        self.capacity = _RAY_TASKS_PER_CPU * max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        return self

    def __exit__(self, *error: Any) -> None:
        for future, reference in self._running.items():
            if not future.done():
                self._ray.cancel(reference, force=True)
        self._cluster.__exit__(*error)

    def submit(self, job: Job) -> Future[RunOutcome]:
        """Send a job, and those of its datasets that were not sent yet."""
        for file in job.files:
            if file not in self._sent:
                self._sent[file] = self._ray.put(np.fromfile(file, np.uint8))
        contents = [self._sent[file] for file in job.files]
        reference = self._task.remote(job.run.to_json(), self._device, *contents)
        future: Future[RunOutcome] = reference.future()
        self._running = {f: r for f, r in self._running.items() if not f.done()} | {future: reference}
        return future


def _execute_on_ray(run: str, device: str, *contents: Array) -> RunOutcome:
    return execute_job(run, (), device, contents)
