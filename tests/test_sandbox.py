"""The walls around every test: without them, a test could pass because of what a machine happens to hold."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import sitecustomize

CLONE = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "write",
    [
        lambda place: place.write_bytes(b""),
        lambda place: place.mkdir(),
        lambda place: place.symlink_to("x"),
        lambda place: os.close(os.open(place, os.O_WRONLY | os.O_CREAT)),
        lambda place: Path("here").rename(place),
    ],
)
def test_nothing_is_written_outside_the_temporary_folder(write):
    Path("here").touch()
    place = CLONE / "left-by-a-test"
    with pytest.raises(sitecustomize.SandboxError):
        write(place)
    assert not os.path.lexists(place)
    sitecustomize.attempts.clear()


def test_only_this_machine_can_be_called():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        socket.create_connection(listening.getsockname()).close()
    with pytest.raises(sitecustomize.SandboxError):
        socket.getaddrinfo("example.org", 80)
    with socket.socket() as calling, pytest.raises(sitecustomize.SandboxError):
        calling.connect(("192.0.2.7", 80))
    sitecustomize.attempts.clear()


@pytest.mark.parametrize(
    "attempt", [f"open({str(CLONE / 'left')!r}, 'w')", "socket.getaddrinfo('example.org', 80)"]
)
def test_processes_that_a_test_starts_are_in_the_sandbox(attempt):
    done = subprocess.run([sys.executable, "-c", f"import socket; {attempt}"], capture_output=True, text=True)
    assert "SandboxError" in done.stderr
