"""What this installation and this machine offer: optional packages, processors, memory."""

import importlib
import os
import sys
from typing import Any

from prolip.core.errors import ModelError


class MissingPackageError(ModelError):
    """A package that an extra installs is missing, or cannot be imported."""

    def __init__(self, purpose: str, package: str, extra: str, reason: str = "") -> None:
        self.package, self.extra = package, extra
        why = f", which cannot be imported ({reason})" if reason else ""
        # It names the interpreter, because a `pip` on the path may belong to another one.
        command = f'{sys.executable} -m pip install "prolip[{extra}]"'
        super().__init__(f"{purpose} needs {package}{why}: {command}")


def require(module: str, extra: str, purpose: str = "this", package: str | None = None) -> Any:
    """Import a module that an extra installs; its package may have another name."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = package or module.partition(".")[0]
        raise MissingPackageError(purpose, package, extra, str(error)) from error


def cores() -> int:
    """Return how many processors this process may use.

    OMP_NUM_THREADS may lower the number, as Ray does for its workers.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(usable, int(limit)) if limit.isdecimal() and int(limit) else usable
