"""ONNX Runtime with telemetry disabled."""

import importlib
import os
from types import ModuleType


def onnx_runtime() -> ModuleType:
    """Import the library with telemetry off; its own switch would come after the first event."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    return importlib.import_module("onnxruntime")
