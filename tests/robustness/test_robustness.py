"""A little of every trial, and many of each (`pytest -m slow`)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks")


def trials(*arguments):
    """Run trials in a process of their own, which forks and so may have no other threads."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ["PYTHONPATH"]])
    command = [sys.executable, "-m", "robustness", *arguments]
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("COVERAGE_PROCESS_CONFIG", None)  # other tests reach the same lines, and forks are slow
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_a_little_of_every_trial():
    ran = trials("--quick")
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-3000:]
    lines = ("kills: overwrite", "kills: export over", "4 at once", "full disk")
    assert all(line in ran.stdout for line in lines)


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("kind", ["kills", "once", "disk"])
def test_many_trials(kind):
    ran = trials("--only", kind)
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-3000:]
