"""ONNX Runtime with telemetry disabled."""

import importlib
import os
from types import ModuleType


def onnx_runtime() -> ModuleType:
    """Import the library with telemetry off; its own switch would come after the first event."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    return importlib.import_module("onnxruntime")


def runs_signed_convolutions() -> bool:
    """Whether convolutions with signed 8-bit weights can be run, as in graphs of the hub named `_int8`."""
    major, minor = map(int, onnx_runtime().__version__.split(".")[:2])
    return (major, minor) >= (1, 24)
