"""A tower on ONNX Runtime that uses all cores of the processor.

A run uses one thread, and several runs are executed in parallel, each on a few images: threads that share one
image wait for each other at every layer, and larger batches do not fit into the processor's cache. At most
one run per core is active, however many threads call, so that memory does not grow with them. No thread
spins.
"""

from concurrent.futures import ThreadPoolExecutor
from threading import BoundedSemaphore

import numpy as np

from prolip.core.arrays import Array
from prolip.io.environment import cores
from prolip.io.onnx_runtime import onnx_runtime

PIECE = 4  # images per run; the fastest of 1 to 32


class OnnxTower:
    """A model with one input, `pixels`, and one output, the features."""

    def __init__(self, model: bytes) -> None:
        onnxruntime = onnx_runtime()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._running = BoundedSemaphore(cores())
        self._threads = ThreadPoolExecutor(cores(), thread_name_prefix="prolip-tower")

    def __call__(self, pixels: Array) -> Array:
        """Compute features [B, width] of pixels [B, S, S, 3]."""
        pieces = [pixels[start : start + PIECE] for start in range(0, len(pixels), PIECE)]
        if len(pieces) <= 1:
            return self._run(pixels)
        return np.concatenate(list(self._threads.map(self._run, pieces)))

    def _run(self, pixels: Array) -> Array:
        with self._running:
            features: Array = self._session.run(None, {"pixels": pixels})[0]
        return features
