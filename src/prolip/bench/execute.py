"""One unit, run: the same numbers in any process, on one thread."""

from __future__ import annotations

import time
import traceback
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prolip.bench.prepare import read_problem
from prolip.bench.units import Unit
from prolip.core import ProlipError, UsageError
from prolip.evaluate import protocols
from prolip.evaluate.problem import Problem

_KEPT = 4  # problems that a worker holds in memory


@dataclass(frozen=True)
class Outcome:
    """What became of a unit: a result, or the text of an error."""

    key: str
    result: dict[str, Any] | None
    error: str | None
    seconds: float


def execute(unit: Unit, problem: Problem, targets: list[Problem]) -> dict[str, Any]:
    """Run a unit on problems; the result is plain JSON."""
    trial = protocols.Trial(
        unit.method, unit.options, unit.shots, unit.seed, unit.views, unit.template, unit.scale, unit.grid
    )
    if unit.protocol == "transfer":
        return protocols.transfer(problem, trial, targets)
    if unit.protocol == "manifold":
        from prolip.bench.manifold import manifold

        return manifold(problem, trial)
    run = {
        "few_shot": protocols.few_shot,
        "few_shot_validation": protocols.few_shot_validation,
        "base_to_new": protocols.base_to_new,
    }.get(unit.protocol)
    if run is None:
        raise UsageError(f"unknown protocol {unit.protocol!r}")
    return run(problem, trial)


class Executor:
    """Runs units one after the other, and keeps the problems that it has read."""

    def __init__(self) -> None:
        self._problems: OrderedDict[str, Problem] = OrderedDict()

    def run(self, key: str, spec: str, sources: Mapping[str, str | bytes]) -> Outcome:
        """Run a unit; nothing that goes wrong in it goes further than its outcome."""
        import torch

        torch.set_num_threads(1)
        started = time.perf_counter()
        try:
            unit = Unit.from_spec(spec)
            problem = self._problem(unit.dataset, sources)
            targets = [self._problem(name, sources) for name in unit.targets]
            result, error = execute(unit, problem, targets), None
        except ProlipError as wrong:  # the user's to mend: the message is all there is to say
            result, error = None, f"{type(wrong).__name__}: {wrong}"
        except Exception:
            result, error = None, traceback.format_exc()
        return Outcome(key, result, error, time.perf_counter() - started)

    def _problem(self, name: str, sources: Mapping[str, str | bytes]) -> Problem:
        source = sources[name]
        place = source if isinstance(source, str) else name
        if place not in self._problems:
            self._problems[place] = read_problem(source)
            while len(self._problems) > max(_KEPT, len(sources)):
                self._problems.popitem(last=False)
        self._problems.move_to_end(place)
        return self._problems[place]
