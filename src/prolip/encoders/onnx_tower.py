"""A model on ONNX Runtime that uses all cores of the processor.

On a processor a run uses one thread, and several runs are executed in parallel, each on a few images: threads
that share one image wait for each other at every layer, and larger batches do not fit into the processor's
cache. At most one run per core is active, however many threads call, so that memory does not grow with them.
No thread spins.
"""

import importlib
import os
import platform
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import BoundedSemaphore
from types import ModuleType
from typing import Any

from prolip.core.arrays import Array
from prolip.io.environment import cores

PIECE = 4  # images per run; the fastest of 1 to 32


def onnx_runtime() -> ModuleType:
    """Import the library with telemetry off; its own switch would come after the first event."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    return importlib.import_module("onnxruntime")


def runs_signed_convolutions() -> bool:
    """Whether convolutions with signed 8-bit weights can be run, as in graphs of the hub named `_int8`."""
    major, minor = map(int, onnx_runtime().__version__.split(".")[:2])
    return (major, minor) >= (1, 24)


@cache
def sums_8_bit_products() -> bool:
    """Whether the processor has an instruction that sums products of 8-bit numbers into 32 bits.

    Those of x86 before 2019 sum into 16 bits, which may overflow; ONNX Runtime has a slower way around it.
    Where the system does not say, the slower way is used.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return True
    with suppress(OSError):
        flags = set(Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").split())
        return bool(flags & {"avx512_vnni", "avx_vnni"})
    return False


class OnnxSession:
    """A model, with the providers to run it on; `folder` has the files of tensors that it refers to."""

    def __init__(
        self, model: bytes, providers: Sequence[Any] = ("CPUExecutionProvider",), folder: Path | None = None
    ) -> None:
        onnxruntime = onnx_runtime()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        if len(providers) == 1:
            options.intra_op_num_threads = 1
        if folder is not None:
            place = "session.model_external_initializers_file_folder_path"
            options.add_session_config_entry(place, str(folder))
        if not sums_8_bit_products():
            options.add_session_config_entry("session.x64quantprecision", "1")
        self._session = onnxruntime.InferenceSession(model, options, providers=list(providers))
        self.on_cpu = len(self._session.get_providers()) == 1
        self.inputs = {value.name: value for value in self._session.get_inputs()}
        runs = cores() if self.on_cpu else 1
        self._running = BoundedSemaphore(runs)
        self._threads = ThreadPoolExecutor(runs, thread_name_prefix="prolip-tower")

    def __call__(
        self, inputs: Mapping[str, Array], names: Sequence[str] | None = None, size: int = PIECE
    ) -> list[list[Array]]:
        """Return the outputs, or values of these names, for each run on `size` rows of the inputs."""
        count = len(next(iter(inputs.values())))
        pieces = [
            {name: array[start : start + size] for name, array in inputs.items()}
            for start in range(0, count, size)
        ]

        def run(piece: dict[str, Array]) -> list[Array]:
            with self._running:
                found: list[Array] = self._session.run(names, piece)
            return found

        return list(self._threads.map(run, pieces) if len(pieces) > 1 else map(run, pieces))
