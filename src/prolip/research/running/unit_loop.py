"""The loop: claim units, have them run, write what comes back."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from prolip.research.running.execute import Executor, Job, Outcome
from prolip.research.running.processes import Died, Processes
from prolip.research.running.result_store import Counts, ResultStore
from prolip.research.running.unit import Unit

_BEAT = 5.0
_WAIT = 0.5


class Pool(Protocol):
    """Something that runs units: processes here, or workers of a cluster."""

    @property
    def free(self) -> int:
        """Units that it can take on now."""

    def submit(self, job: Job) -> None:
        """Take on a unit, of which `outcomes` will tell."""

    def outcomes(self, timeout: float) -> list[Outcome | Died]:
        """What has come back."""


@dataclass(frozen=True)
class Status:
    """A moment of a run: how far the plan is, how far it was when the run began, and seconds since then."""

    counts: Counts
    before: Counts
    seconds: float

    @property
    def rate(self) -> float:
        """Units a second, of all who work on the plan."""
        run = self.counts.done + self.counts.failed - self.before.done - self.before.failed
        return run / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """The work that is left, by as many units at a time as ran until now."""
        spent = self.counts.spent - self.before.spent
        return None if self.counts.left is None or spent <= 0 else self.counts.left * self.seconds / spent


def run_plan(
    results: ResultStore,
    plan: int,
    files_of: Callable[[Unit], Mapping[str, str]],
    pool: AbstractContextManager[Pool],
    progress: Callable[[Status], None] | None = None,
) -> Counts:
    """Run every unit of a plan that no one else has, until none waits.

    Units that other runners hold are waited for, and taken over if those runners die. `files_of` gives the
    files of problems that a unit reads; `progress` is called after every change, and now and then.
    """
    started = beaten = counted = time.monotonic()
    counts = before = results.counts(plan)
    with pool as workers:
        queue: deque[tuple[str, Unit]] = deque()  # claimed, not started
        held: set[str] = set()  # started
        while True:
            status = Status(counts, before, time.monotonic() - started)
            if workers.free and not queue:
                # Quick units are claimed by the second's worth; slow ones singly, to leave some to others.
                queue.extend(results.claim(plan, workers.free + min(64, int(status.rate))))
            while queue and workers.free:
                key, unit = queue.popleft()
                held.add(key)
                workers.submit((key, unit.as_json(), files_of(unit)))
            now = time.monotonic()
            if not held or now - counted > _WAIT:
                counts, counted = results.counts(plan), now
                if progress is not None:
                    progress(Status(counts, before, now - started))
            if not held and not counts.running and not counts.waiting:
                return counts
            if not held:
                time.sleep(_WAIT)  # the rest is in other hands
            for outcome in workers.outcomes(_WAIT) if held else []:
                held.discard(outcome.key)
                _write(results, outcome)
            if now - beaten > _BEAT:
                results.beat()
                beaten = now


def _write(results: ResultStore, outcome: Outcome | Died) -> None:
    if isinstance(outcome, Died):
        results.died(outcome.key, outcome.reason)
    elif outcome.result is not None:
        results.finish(outcome.key, outcome.result, outcome.seconds)
    else:
        results.fail(outcome.key, outcome.error or "no reason was given", outcome.seconds)


class ThisProcess:
    """No workers at all: units run in this process, one after the other."""

    def __init__(self, device: str = "auto") -> None:
        self._executor = Executor(device)
        self._job: Job | None = None

    @property
    def free(self) -> int:
        """One, if none is waiting."""
        return int(self._job is None)

    def submit(self, job: Job) -> None:
        """Keep the unit until its outcome is asked for."""
        self._job = job

    def outcomes(self, timeout: float) -> list[Outcome | Died]:
        """Run the unit that was submitted, here and now."""
        job, self._job = self._job, None
        return [] if job is None else [self._executor.run(job)]


def local_pool(jobs: int, device: str = "auto") -> AbstractContextManager[Pool]:
    """Processes on this machine; 0 runs in this process."""
    return Processes(jobs, device) if jobs else nullcontext(ThisProcess(device))
