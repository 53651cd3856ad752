"""Run an experiment, and look at what has been run: what the commands call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prolip.bench.cells import Table
from prolip.bench.collect import Collected
from prolip.bench.counts import parameters
from prolip.bench.experiment import Experiment
from prolip.bench.plan import Choices, expand, settle
from prolip.bench.prepare import Progress, prepare
from prolip.bench.results import Counts, ResultStore
from prolip.bench.runner import Status, local_pool, run_plan
from prolip.bench.tables import build
from prolip.core.errors import UsageError
from prolip.features import FeatureStore
from prolip.solvers.threads import cores


@dataclass(frozen=True)
class How:
    """Where and by what an experiment is run.

    Attributes
    ----------
    root
        Of the datasets.
    results
        The file of results.
    jobs
        Processes; None is one per core, 0 runs in this one.
    ray
        Address of a Ray cluster; "local" starts one here.
    retry
        Run failed units again.
    device, store
        Of the encoder; where features are kept.
    """

    root: Path
    results: Path
    jobs: int | None = None
    ray: str | None = None
    retry: bool = False
    device: str = "auto"
    store: FeatureStore | None = None


def run(
    experiment: Experiment,
    choices: Choices,
    how: How,
    encoding: Progress | None = None,
    progress: Callable[[Status], None] | None = None,
) -> Counts:
    """Encode what is needed, run what is not done, and say how it stands."""
    if experiment.layout == "parameters":
        raise UsageError("there is nothing to run: prolip bench table parameters")
    settled = settle(experiment, choices, how.root)
    units = [planned.unit for planned in expand(experiment, settled)]
    prepared = prepare(
        units,
        how.root,
        templates=settled.templates or None,
        device=how.device,
        store=how.store,
        progress=encoding,
    )
    jobs = cores() if how.jobs is None else how.jobs
    with ResultStore(how.results) as results:
        keys = [(prepared.key(unit), unit) for unit in units]
        plan = results.add_plan(experiment.name, settled.as_json(), keys)
        if how.retry:
            results.retry(plan)
        if how.ray is None:
            pool = local_pool(min(jobs, len(units)))
        else:
            from prolip.bench.ray_pool import RayPool

            pool = RayPool(how.ray)
        return run_plan(results, plan, prepared.files_of, pool, progress)


def collect(experiment: Experiment, results: Path) -> Collected:
    """The last run of an experiment."""
    if not results.is_file():
        raise UsageError(
            f"there are no results in {results} yet: prolip bench run {experiment.name} --data ROOT"
        )
    with ResultStore(results) as store:
        found = store.last_plan(experiment.name)
        if found is None:
            raise UsageError(
                f"{experiment.name} has not been run: prolip bench run {experiment.name} --data ROOT"
            )
        plan, choices = found
        return Collected.of(experiment, Choices.from_json(choices), store.rows(plan))


def table(experiment: Experiment, results: Path) -> Table:
    """The table of the last run."""
    if experiment.layout == "parameters":
        return parameters(experiment)
    return build(collect(experiment, results))
