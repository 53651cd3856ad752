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


@pytest.mark.parametrize(
    ("kinds", "lines"),
    [
        (["library"], ["kills at every change"]),
        (["kills"], ["kills: overwrite", "kills: export over"]),
        (["once", "disk", "vanish", "many"], ["4 at once", "full disk", "vanish", "500 files"]),
    ],
)
def test_a_little_of_every_trial(kinds, lines):
    ran = trials("--quick", "--only", *kinds)
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-3000:]
    assert all(line in ran.stdout for line in lines)


def test_trials_notice_a_writer_that_leaves_a_part():
    ran = trials("--only", "careless")
    assert (ran.returncode, "silent change: careless" in ran.stdout) == (1, True), ran.stdout + ran.stderr


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("kind", ["kills", "once", "disk", "user", "vanish", "many"])
def test_many_trials(kind):
    ran = trials("--only", kind)
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-3000:]
    assert kind != "user" or os.geteuid() or "ordinary user" in ran.stdout
