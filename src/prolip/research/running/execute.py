"""One unit, run: the same numbers in any process, on one thread."""

import time
import traceback
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from prolip.core import ProlipError, UsageError
from prolip.core.arrays import Array
from prolip.research.protocols.encoded_dataset import EncodedDataset
from prolip.research.protocols.protocols import PROTOCOLS
from prolip.research.running.problem_file import read_problem
from prolip.research.running.result_key import runs_a_tower
from prolip.research.running.unit import Unit
from prolip.solvers.threads import single_thread

_KEPT = 4  # problems that a worker holds in memory

Job = tuple[str, str, Mapping[str, str]]  # a result's key, the unit as JSON, the file of each dataset


@dataclass(frozen=True)
class Outcome:
    """What became of a unit: a result, or the text of an error."""

    key: str
    result: dict[str, Any] | None
    error: str | None
    seconds: float


def execute(unit: Unit, problem: EncodedDataset, targets: list[EncodedDataset]) -> dict[str, Any]:
    """Run a unit on problems; the result is plain JSON."""
    if unit.protocol == "manifold":
        from prolip.research.running.manifold import manifold

        return manifold(problem, unit.trial)
    if unit.protocol not in PROTOCOLS:
        raise UsageError(f"unknown protocol {unit.protocol!r}")
    return PROTOCOLS[unit.protocol](problem, unit.trial, *([targets] if targets else []))


class Executor:
    """Runs units one after the other, and keeps the problems that it has read; towers run on `device`."""

    def __init__(self, device: str = "auto") -> None:
        self._device = device
        self._problems: OrderedDict[str, EncodedDataset] = OrderedDict()

    def run(self, job: Job, contents: Mapping[str, Array] | None = None) -> Outcome:
        """Run a unit; nothing that goes wrong in it goes further than its outcome.

        `contents` are the bytes of the job's files, where they cannot be opened from here.
        """
        key, text, files = job
        started = time.perf_counter()
        try:
            unit = Unit.from_json(text)
            if runs_a_tower(unit):
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
            self._problems[file] = read_problem(file if content is None else content, self._device)
            while len(self._problems) > keep:
                self._problems.popitem(last=False)
        self._problems.move_to_end(file)
        return self._problems[file]


def _one_torch_thread() -> None:
    """For units that run a tower; without torch they say themselves what is missing."""
    with suppress(ImportError):
        import torch

        torch.set_num_threads(1)
