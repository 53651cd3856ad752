"""Run a plan: encode what it needs, write it down, run what is not done. Or say what that would take."""

import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from prolip.features import FeatureStore
from prolip.research.running.plan import Plan
from prolip.research.running.prepare import Progress, prepare
from prolip.research.running.result_key import code_version, runs_a_tower
from prolip.research.running.result_store import Counts, ResultStore
from prolip.research.running.unit import Unit
from prolip.research.running.unit_loop import Status, local_pool, run_plan
from prolip.solvers.threads import cores

# Seconds of a unit where none has been timed: on features, and through a tower. Orders of magnitude.
_GUESS, _GUESS_TOWER = 1.0, 300.0


@dataclass(frozen=True)
class Resources:
    """Where and by what a plan is run."""

    root: Path  # of the datasets
    results: Path  # the file of results
    jobs: int | None = None  # processes; None is one per core, 0 runs in this one
    ray: str | None = None  # address of a Ray cluster; "local" starts one here
    device: str = "auto"  # of the encoder
    store: FeatureStore | None = None  # where features are kept

    @property
    def workers(self) -> int:
        """Processes of a local run."""
        return cores() if self.jobs is None else self.jobs


def run(
    plan: Plan,
    resources: Resources,
    encoding: Progress | None = None,
    progress: Callable[[Status], None] | None = None,
    retry: bool = False,
) -> Counts:
    """Run what is not done, and say how it stands; `retry` runs failed units again."""
    units = [planned.unit for planned in plan.units]
    prepared = prepare(
        units,
        resources.root,
        templates=plan.choices.templates,
        device=resources.device,
        store=resources.store,
        progress=encoding,
    )
    with ResultStore(resources.results) as results:
        number = results.add_plan(plan, prepared.keys)
        if retry:
            results.retry(number)
        if resources.ray is None:
            pool = local_pool(min(resources.workers, len(units)), resources.device)
        else:
            from prolip.research.running.ray_pool import RayPool

            pool = RayPool(resources.ray, device=resources.device)
        return run_plan(results, number, prepared.files_of, pool, progress)


@dataclass(frozen=True)
class Forecast:
    """What a run would take: its units, those that are done, seconds for the others, and how many of these
    have no like among the results, so that their time is a guess. Encoding comes on top.
    """

    units: int
    done: int
    seconds: float
    guessed: int


def forecast(plan: Plan, resources: Resources) -> Forecast:
    """Look at the results without running, encoding or writing anything.

    A unit counts as done if it is, with this code; whether its pictures are the same shows when it is run.
    """
    timings: list[tuple[Unit, str, float]] = []
    if resources.results.is_file():
        with ResultStore(resources.results) as store:
            timings = store.timings()
    done = {(unit.as_json(), code) for unit, code, _ in timings}
    alike: dict[str, list[float]] = defaultdict(list)
    for unit, _, seconds in timings:
        alike[_kind(unit)].append(seconds)
    units = {planned.unit.as_json(): planned.unit for planned in plan.units}
    ahead = [unit for text, unit in units.items() if (text, code_version(unit)) not in done]
    guesses = [unit for unit in ahead if _kind(unit) not in alike]
    seconds = sum(statistics.fmean(alike[_kind(unit)]) for unit in ahead if _kind(unit) in alike)
    seconds += sum(_GUESS_TOWER if runs_a_tower(unit) else _GUESS for unit in guesses)
    return Forecast(len(units), len(units) - len(ahead), seconds / max(1, resources.workers), len(guesses))


def _kind(unit: Unit) -> str:
    """Units that differ by dataset and seed alone take about as long."""
    return replace(unit, dataset="", trial=replace(unit.trial, seed=0)).as_json()
