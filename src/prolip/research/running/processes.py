"""Worker processes on this machine, each on one thread, each at the end of a pipe of its own.

A worker whose runner is gone reads the end of its pipe and exits: nothing is left behind. A worker that dies
takes only its unit with it, and another takes its place.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from prolip.research.running.execute import Executor, Job, Outcome

_THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


@dataclass(frozen=True)
class Died:
    """A unit whose process is gone."""

    key: str
    reason: str


class Processes:
    """A pool of so many worker processes (one per core is the most that helps); towers run on `device`."""

    def __init__(self, count: int, device: str = "auto") -> None:
        self._count, self._device = count, device
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[_Worker] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.stop()

    @property
    def free(self) -> int:
        """Units that can be taken on now."""
        return self._count - sum(worker.key is not None for worker in self._workers)

    def submit(self, job: Job) -> None:
        """Hand a unit to a worker that is free."""
        worker = next((w for w in self._workers if w.key is None), None)
        if worker is None:
            worker = _Worker.start(self._context, self._device)
            self._workers.append(worker)
        worker.give(job)

    def outcomes(self, timeout: float) -> list[Outcome | Died]:
        """What has come back, waiting up to `timeout` seconds for the first."""
        busy = {worker.pipe: worker for worker in self._workers if worker.key is not None}
        found: list[Outcome | Died] = []
        for pipe in wait(list(busy), timeout):
            worker = busy[pipe]  # type: ignore[index]
            outcome = worker.take()
            if isinstance(outcome, Died):
                self._workers.remove(worker)
            found.append(outcome)
        return found


@dataclass(eq=False)
class _Worker:
    process: Any
    pipe: Connection
    key: str | None = None

    @classmethod
    def start(cls, context: Any, device: str) -> _Worker:
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, device), daemon=True)
        with _single_threaded():
            process.start()
        theirs.close()
        return cls(process, ours)

    def give(self, job: Job) -> None:
        self.key = job[0]
        with contextlib.suppress(BrokenPipeError):  # it died just now: `take` will find out
            self.pipe.send(job)

    def take(self) -> Outcome | Died:
        key, self.key = self.key, None
        try:
            outcome: Outcome = self.pipe.recv()
            return outcome
        except (EOFError, OSError):
            self.process.join(5)
            return Died(str(key), f"exit code {self.process.exitcode}")

    def stop(self) -> None:
        self.pipe.close()
        if self.key is not None:
            self.process.terminate()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()


def _serve(pipe: Connection, device: str) -> None:
    """What a worker does: run what comes through the pipe, until it ends."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the runner's to handle
    executor = Executor(device)
    try:
        while True:
            pipe.send(executor.run(pipe.recv()))
    except (EOFError, OSError):
        return


@contextlib.contextmanager
def _single_threaded() -> Iterator[None]:
    """Libraries read these when they are first imported, which a new process does."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
