"""What this machine lends to the process."""

import os


def cores() -> int:
    """How many processors this process may use; OMP_NUM_THREADS may lower it, as Ray does for its workers."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    named = os.environ.get("OMP_NUM_THREADS", "")
    return min(usable, int(named)) if named.isdecimal() and int(named) else usable
