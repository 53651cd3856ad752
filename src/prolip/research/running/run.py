"""Run a plan: encode what it needs, store it, run what is not done."""

from __future__ import annotations

import functools
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from prolip.core import ProlipError
from prolip.io.environment import cores, require
from prolip.io.pool import Pool, open_pool
from prolip.methods.prolip import ConvergenceWarning
from prolip.research.datasets import DATASETS
from prolip.research.places import find
from prolip.research.protocols.encoded_dataset import EncodedDataset
from prolip.research.protocols.protocols import PROTOCOLS
from prolip.research.protocols.run import Run
from prolip.research.running.encoding import Encoding, Place, read_encoding
from prolip.research.running.plan import Plan
from prolip.research.running.result_key import result_key
from prolip.research.running.result_store import ResultStore
from prolip.research.running.source import EncodingProgress, Source
from prolip.solvers.threads import single_thread

_OPEN_FILES = 16  # datasets that a worker keeps mapped


@dataclass(frozen=True)
class RunCounts:
    """Runs of a plan that are done, and that failed; one that several of its entries share counts once."""

    done: int
    failed: int
    total: int


RunProgress = Callable[[RunCounts], None]


class Job(NamedTuple):
    """A run with the key of its result, and a file for each of its datasets."""

    key: str
    run: Run
    files: tuple[str, ...]
    device: str = "auto"


class JobResult(NamedTuple):
    """The result of a job, or the error that ended it."""

    key: str
    result: dict[str, Any] | None
    error: str | None


def run_plan(
    plan: Plan,
    source: Source,
    results: Path,
    *,
    jobs: int | None = None,
    ray: str | None = None,
    device: str = "auto",
    encoding: EncodingProgress | None = None,
    progress: RunProgress | None = None,
) -> RunCounts:
    """Run what has no result of a plan.

    `jobs` is the number of processes: None is one per core, 1 runs in this one. `ray` is the address of a
    cluster instead, whose machines must see the cache folder, or the pack; "local" starts one here.
    """
    if ray is not None:
        require("ray", "ray", "a cluster")  # before encoding, which takes long
    with ResultStore(results) as store:
        opened = source.open(plan, encoding)
        prepared = prepare_jobs(plan, opened, device)
        datasets = [encoding.dataset for encoding, _ in opened.values() if encoding.dataset.name in DATASETS]
        incomplete = {
            one.name: ", ".join(found)
            for one in datasets
            if (found := DATASETS[one.name].differences(one.sizes, len(one.classes)))
        }
        plan = replace(plan, incomplete=incomplete)
        store.add_plan(plan, [job.key for job in prepared])
        processes = jobs if ray else min(cores() if jobs is None else jobs, max(1, len(prepared)))
        with open_pool(processes, ray) as pool:
            return run_jobs(store, prepared, pool, progress)


def prepare_jobs(plan: Plan, opened: dict[Place, tuple[Encoding, Path]], device: str = "auto") -> list[Job]:
    """Return the jobs of a plan's runs, in order."""
    jobs = []
    for run in plan.runs:
        (encoding, _), *targets = (opened[place] for place in Place.of(run))
        inputs = [encoding.digest(run), *(target.test_digest(run.template) for target, _ in targets)]
        files = tuple(str(opened[place][1]) for place in Place.of(run))
        jobs.append(Job(result_key(run, "\n".join(inputs)), run, files, device))
    return jobs


def run_jobs(
    store: ResultStore, jobs: Sequence[Job], pool: Pool, progress: RunProgress | None = None
) -> RunCounts:
    """Run every job that has no result, and store what comes.

    Seed after seed: tables of an unfinished run have every line.
    """
    unique = {job.key: job for job in jobs}
    turns = {seed: turn for turn, seed in enumerate(dict.fromkeys(job.run.seed for job in jobs))}
    known = store.known()
    waiting = [job for key, job in unique.items() if key not in known]
    waiting.sort(key=lambda job: turns[job.run.seed])
    counts = RunCounts(len(unique) - len(waiting), 0, len(unique))
    for outcome in pool.imap_unordered(execute_job, waiting):
        store.add_result(outcome.key, unique[outcome.key].run, outcome.result, outcome.error)
        failed = outcome.result is None
        counts = RunCounts(counts.done + (not failed), counts.failed + failed, counts.total)
        if progress is not None:
            progress(counts)
    return counts


def execute_job(job: Job) -> JobResult:
    """Execute a run; errors become part of the result."""
    try:
        if job.run.runs_tower:
            require("torch", "torch").set_num_threads(1)
        source, *targets = (_read_once(file, job.device) for file in job.files)
        protocol = find("protocol", job.run.protocol, PROTOCOLS)
        with single_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the result says so
            arguments = [targets] if targets else []
            return JobResult(job.key, protocol(source, job.run, *arguments), None)
    except ProlipError as wrong:  # the message is enough
        return JobResult(job.key, None, f"{type(wrong).__name__}: {wrong}")
    except Exception:
        return JobResult(job.key, None, traceback.format_exc())


@functools.lru_cache(maxsize=_OPEN_FILES)
def _read_once(file: str, device: str) -> EncodedDataset:
    return read_encoding(Path(file), device).dataset
