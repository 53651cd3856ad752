"""One unit, run: the same numbers in any process, on one thread."""

from __future__ import annotations

import time
import traceback
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from prolip import methods
from prolip.bench.problem_file import read_problem
from prolip.bench.units import Unit
from prolip.core import ProlipError, UsageError
from prolip.core.arrays import Array
from prolip.evaluate import protocols
from prolip.evaluate.encoded_dataset import EncodedDataset
from prolip.methods.common.tower_method import TowerMethod
from prolip.solvers.threads import single_thread

_KEPT = 4  # problems that a worker holds in memory


@dataclass(frozen=True)
class Outcome:
    """What became of a unit: a result, or the text of an error."""

    key: str
    result: dict[str, Any] | None
    error: str | None
    seconds: float


def execute(unit: Unit, problem: EncodedDataset, targets: list[EncodedDataset]) -> dict[str, Any]:
    """Run a unit on problems; the result is plain JSON."""
    trial = protocols.Trial(
        unit.method, unit.options, unit.shots, unit.seed, unit.views, unit.template, unit.scale, unit.grid
    )
    if unit.protocol == "transfer":
        return protocols.transfer(problem, trial, targets)
    if unit.protocol.startswith("test_time_"):
        return protocols.per_image(problem, trial, targets, unit.protocol.removeprefix("test_time_"))
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
        self._problems: OrderedDict[str, EncodedDataset] = OrderedDict()

    def run(
        self, key: str, spec: str, files: Mapping[str, str], contents: Mapping[str, Array] | None = None
    ) -> Outcome:
        """Run a unit; nothing that goes wrong in it goes further than its outcome.

        Parameters
        ----------
        key, spec
            Of the unit.
        files
            The file of each dataset's problem.
        contents
            The bytes in those files, where they cannot be opened from here.
        """
        started = time.perf_counter()
        try:
            unit = Unit.from_spec(spec)
            if unit.protocol.startswith("test_time_") or issubclass(methods.get(unit.method), TowerMethod):
                _one_torch_thread()
            keep = max(_KEPT, len(files))
            problem, *targets = (
                self._problem(files[name], None if contents is None else contents[name], keep)
                for name in (unit.dataset, *unit.targets)
            )
            with single_thread():
                result, error = execute(unit, problem, targets), None
        except ProlipError as wrong:  # the user's to mend: the message is all there is to say
            result, error = None, f"{type(wrong).__name__}: {wrong}"
        except Exception:
            result, error = None, traceback.format_exc()
        return Outcome(key, result, error, time.perf_counter() - started)

    def _problem(self, file: str, content: Array | None, keep: int) -> EncodedDataset:
        if file not in self._problems:
            self._problems[file] = read_problem(file if content is None else content)
            while len(self._problems) > keep:
                self._problems.popitem(last=False)
        self._problems.move_to_end(file)
        return self._problems[file]


def _one_torch_thread() -> None:
    """For units that run a tower; without torch they say themselves what is missing."""
    with suppress(ImportError):
        import torch

        torch.set_num_threads(1)
