"""Units on a Ray cluster: the same ones, with the same results; only the driver writes them down.

Problems travel once, into the cluster's object store (as arrays, which workers map and do not copy), so that
workers need no file of ours. A worker that dies is Ray's to replace: its unit is started again elsewhere.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import numpy as np

from prolip.io.environment import MissingPackageError
from prolip.research.running.execute import Executor, Job, Outcome
from prolip.research.running.processes import Died

_RETRIES = 3
_AHEAD = 2  # units for each of the cluster's processors: one runs, one is on its way


class RayPool:
    """A pool over a cluster; towers run on `device`.

    As `address`, "local" starts a cluster here, with so many `cpus` (None: all); "auto", or "ray://HOST:PORT",
    joins one.
    """

    def __init__(self, address: str, cpus: int | None = None, device: str = "auto") -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingPackageError("a cluster", "ray", "ray") from error
        self._ray: Any = ray
        self._address, self._cpus, self._device = address, cpus, device
        self._problems: dict[str, Any] = {}
        self._running: dict[Any, str] = {}

    def __enter__(self) -> RayPool:
        self._started = not self._ray.is_initialized()
        if self._started:
            here: dict[str, Any] = {"num_cpus": self._cpus} if self._address == "local" else {}
            self._ray.init(
                address=self._address,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                **here,
            )
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        options = {"num_cpus": 1, "max_retries": _RETRIES, "runtime_env": {"env_vars": threads}}
        self._task = self._ray.remote(**options)(_run)
        self._capacity = _AHEAD * max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        return self

    def __exit__(self, *_: object) -> None:
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        if self._started:
            self._ray.shutdown()

    @property
    def free(self) -> int:
        """Units that the cluster can take on now."""
        return max(0, self._capacity - len(self._running))

    def submit(self, job: Job) -> None:
        """Send a unit; its problems are sent once."""
        key, _, files = job
        for file in files.values():
            if file not in self._problems:
                self._problems[file] = self._ray.put(np.fromfile(file, np.uint8))
        problems = [self._problems[file] for file in files.values()]
        self._running[self._task.remote(self._device, job, *problems)] = key

    def outcomes(self, timeout: float) -> list[Outcome | Died]:
        """What has come back."""
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=timeout)
        found: list[Outcome | Died] = []
        for reference in ready:
            key = self._running.pop(reference)
            try:
                found.append(self._ray.get(reference))
            except self._ray.exceptions.RayError as error:
                found.append(Died(key, str(error).strip().splitlines()[0]))
        return found


@functools.cache  # a worker process runs many units
def _executor(device: str) -> Executor:
    return Executor(device)


def _run(device: str, job: Job, *problems: np.ndarray) -> Outcome:
    return _executor(device).run(job, dict(zip(job[2], problems, strict=True)))
