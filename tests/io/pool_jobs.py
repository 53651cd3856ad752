"""Jobs for worker processes, which import them."""

import os
import signal
from typing import Any


def square(number: int) -> tuple[int, Any]:
    return number**2, os.environ.get("OMP_NUM_THREADS")


def fail(number: int) -> int:
    raise KeyError(number)


def die(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    return number
