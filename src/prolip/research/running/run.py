"""Run a plan: encode what it needs, store it, run what is not done. Or estimate what that would take."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from prolip.core.errors import first_line
from prolip.features import FeatureStore
from prolip.io.environment import cores
from prolip.research.datasets import DATASETS
from prolip.research.running.encoded_file import read_encoded
from prolip.research.running.estimate import Timings
from prolip.research.running.pack import Pack
from prolip.research.running.plan import Plan
from prolip.research.running.prepare import EncodingProgress, prepare
from prolip.research.running.result_key import code_version
from prolip.research.running.result_store import PlanStatus, ResultStore
from prolip.research.running.workers import (
    Job,
    JobPool,
    Processes,
    RayPool,
    RunOutcome,
    ThisProcess,
)

_ALIVE_SECONDS = 5.0
_WAIT_SECONDS = 0.5

# Gets the status, and the seconds left if they can be estimated.
RunProgress = Callable[[PlanStatus, float | None], None]


def run_plan(
    plan: Plan,
    source: Path | Pack,
    results: Path,
    *,
    jobs: int | None = None,
    ray: str | None = None,
    device: str = "auto",
    store: FeatureStore | None = None,
    retry: bool = False,
    encoding: EncodingProgress | None = None,
    progress: RunProgress | None = None,
) -> PlanStatus:
    """Run what is not done of a plan, on datasets in a folder or a pack; `retry` runs failed runs again.

    `jobs` is the number of processes: None is one per core, 0 runs in this one. `ray` is the address of a
    cluster instead; "local" starts one here. `store` is where features are stored.
    """
    workers = min(cores() if jobs is None else jobs, len(plan.runs))
    # Both before encoding, which takes long: a package or a folder can be missing.
    pool = local_pool(workers, device) if ray is None else RayPool(ray, device=device)
    with ResultStore(results) as opened:
        prepared = prepare(plan, source, device=device, store=store, progress=encoding)
        plan = replace(plan, incomplete=_incomplete(prepared))
        number = opened.add_plan(plan, [job.key for job in prepared])
        if retry:
            opened.retry(number)
        return run_jobs(opened, number, prepared, pool, progress)


def _incomplete(jobs: Sequence[Job]) -> dict[str, str]:
    """Return which of the paper's datasets are not complete, and what they have."""
    found = {}
    for file in dict.fromkeys(file for job in jobs for file in job.files):
        dataset = read_encoded(file)
        if (known := DATASETS.get(dataset.name)) is not None:
            has = {split: len(one.labels) for split, one in dataset.splits.items()}
            wrong = [
                f"{has.get(s, 0):,} of {n:,} {s} images" for s, n in known.sizes.items() if has.get(s) != n
            ]
            if len(dataset.classes) != known.classes:
                wrong.append(f"{len(dataset.classes)} of {known.classes} classes")
            if wrong:
                found[dataset.name] = ", ".join(wrong)
    return found


def local_pool(jobs: int, device: str = "auto") -> AbstractContextManager[JobPool]:
    """Return a pool of processes on this machine; 0 runs in this process."""
    return Processes(jobs, device) if jobs else nullcontext(ThisProcess(device))


def run_jobs(
    results: ResultStore,
    plan: int,
    jobs: Sequence[Job],
    pool: AbstractContextManager[JobPool],
    progress: RunProgress | None = None,
) -> PlanStatus:
    """Run every job of a stored plan that no other runner has claimed, until all are finished.

    Runs of other runners are waited for, and taken over if those runners die.
    """
    by_key = {job.key: job for job in jobs}
    started = alive = counted = time.monotonic()
    pause = _WAIT_SECONDS  # between two looks at the status
    status = before = results.status(plan)
    with pool as workers:
        claimed: list[Job] = []
        running: dict[Future[RunOutcome], str] = {}
        while True:
            now = time.monotonic()
            free = workers.capacity - len(running)
            if free and not claimed:
                # Fast runs are claimed for a second in advance; slow ones singly, to leave some to others.
                ahead = min(64, int(_rate(status, before, now - started)))
                claimed = [by_key[key] for key in results.claim(plan, free + ahead)]
            while claimed and len(running) < workers.capacity:
                job = claimed.pop(0)
                running[workers.submit(job)] = job.key
            if not running or now - counted > pause:
                status, counted = results.status(plan), time.monotonic()
                pause = max(_WAIT_SECONDS, 20 * (counted - now))  # workers wait meanwhile
                if progress is not None:
                    progress(status, _seconds_left(status, before, now - started))
            if not running and status.finished == status.total:
                return status
            if not running:
                time.sleep(_WAIT_SECONDS)  # other runners have the rest
            for future in wait(running, _WAIT_SECONDS, FIRST_COMPLETED).done:
                key = running.pop(future)
                if (error := future.exception()) is None:
                    results.finish(key, *future.result())
                else:  # errors of a run are part of its outcome: this is the worker's
                    results.worker_died(key, first_line(error))
            if now - alive > _ALIVE_SECONDS:
                results.keep_alive()
                alive = now


def _rate(status: PlanStatus, before: PlanStatus, elapsed: float) -> float:
    """Return the finished runs per second, of all runners."""
    return (status.finished - before.finished) / elapsed if elapsed > 0 else 0.0


def _seconds_left(status: PlanStatus, before: PlanStatus, elapsed: float) -> float | None:
    """Estimate the time left, with as many runs at a time as until now."""
    spent = status.seconds - before.seconds
    return None if status.seconds_left is None or spent <= 0 else status.seconds_left * elapsed / spent


@dataclass(frozen=True)
class DryRun:
    """What a run would take: its runs, those that are done, and seconds for the others without encoding.

    `guessed` is the number of runs whose time is a guess, because no similar run has been timed.
    """

    units: int
    done: int
    seconds: float
    guessed: int


def dry_run(plan: Plan, results: Path, workers: int) -> DryRun:
    """Estimate what a run would take, without running, encoding or writing anything.

    A run counts as done if it is, with this code; whether its images are the same shows when it is run.
    """
    found: list[tuple[str, str, float]] = []
    if results.is_file():
        with ResultStore(results, reading=True) as store:
            found = store.timings()
    done, timings = {(run, code) for run, code, _ in found}, Timings()
    for run, _, seconds in found:
        timings.add(run, seconds)
    runs = {run.to_json(): run for run in plan.runs}
    ahead = [text for text, run in runs.items() if (text, code_version(run)) not in done]
    seconds = timings.estimate((run, 1) for run in ahead) / max(1, workers)
    return DryRun(len(runs), len(runs) - len(ahead), seconds, sum(not timings.knows(run) for run in ahead))
