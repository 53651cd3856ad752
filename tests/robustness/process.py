"""Run commands in child processes that can be killed.

A child is forked from a process that has the encoder loaded, which is cheap. A fork copies only the thread
that calls it: a child whose parent has run a tower would wait for ever for the threads of the tower's pool,
so `Child` refuses to fork a process with other threads. The child runs the real command line. It is killed at
its n-th change of a file, before the change or in the middle of a write, or after some time; after `PATIENCE`
seconds it counts as hanging.
"""

import mmap
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 20.0  # seconds
# Audit events of changes.
CHANGES = (
    *("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.link"),
    *("shutil.rmtree", "tempfile.mkstemp", "tempfile.mkdtemp"),
)
Work = Callable[[], None]


@dataclass(frozen=True)
class Ran:
    """How a child ended: exit code (negative for a signal), output, number of changes, seconds."""

    code: int
    output: str
    changes: int
    seconds: float
    hung: bool = False

    @property
    def crashed(self) -> bool:
        """Whether it ended in a traceback."""
        return "Traceback (most recent call last)" in self.output


class Child:
    """A function in a forked process.

    `kill_at` is the change of a file at which it is killed, `limit` the most bytes a file may have.
    """

    def __init__(self, work: Work, kill_at: int | None = None, limit: int | None = None) -> None:
        if others := threading.enumerate()[1:]:
            raise RuntimeError(f"a process with other threads cannot be forked: {others}")
        self._count = mmap.mmap(-1, 8)  # shared with the child
        self._output, output = os.pipe()
        self.began = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _run_child(lambda: _prepare(self._count, kill_at, limit), work, output)
        os.close(output)
        os.set_blocking(self._output, False)

    def kill(self) -> None:
        """Kill it at once."""
        os.kill(self.pid, signal.SIGKILL)

    @staticmethod
    def sleep_until(moment: float) -> None:
        """Wait for a moment of `time.monotonic`."""
        time.sleep(max(0.0, moment - time.monotonic()))

    def wait(self, patience: float = PATIENCE) -> Ran:
        """Wait until it ends, and say how."""
        output, hung = bytearray(), False
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            with suppress(BlockingIOError):
                while part := os.read(self._output, 1 << 16):
                    output += part
            if pid:
                break
            if time.monotonic() - self.began > patience and not hung:
                hung = True
                self.kill()
            time.sleep(0.002)
        os.close(self._output)
        code, changes = os.waitstatus_to_exitcode(status), int.from_bytes(self._count[:], "little")
        seconds = time.monotonic() - self.began
        return Ran(code, output.decode(errors="replace"), changes, seconds, hung)


def _run_child(prepare: Work, work: Work, output: int) -> None:
    code = 70
    try:
        for stream in (1, 2):
            os.dup2(output, stream)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        prepare()
        work()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _prepare(count: mmap.mmap, kill_at: int | None, limit: int | None) -> None:
    _count_changes(count, kill_at)
    if limit is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def _count_changes(count: mmap.mmap, kill_at: int | None) -> None:
    """Count changes of files in this process, and end it at one of them."""
    write = os.write

    def is_last() -> bool:
        now = int.from_bytes(count[:], "little") + 1
        count[:] = now.to_bytes(8, "little")
        return now == kill_at

    def hook(event: str, arguments: tuple) -> None:
        opens = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (event in CHANGES or opens) and is_last():
            os.kill(os.getpid(), signal.SIGKILL)

    def write_half(handle: int, data: bytes) -> int:
        if handle > 2 and is_last():
            write(handle, bytes(data)[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return write(handle, data)

    sys.addaudithook(hook)
    os.write = write_half


def command(arguments: Sequence[object], cwd: Path, **environment: str) -> Work:
    """Return a function that runs a command line in a folder."""

    def work() -> None:
        from prolip.cli import main

        os.chdir(cwd)
        os.environ.update(environment)
        sys.argv = ["prolip", *map(str, arguments)]
        main()

    return work


def share_encoder() -> object:
    """Load the offline encoder once, for all children; each child starts threads of its own."""
    import onnxruntime  # noqa: F401
    import scipy.optimize  # noqa: F401

    from prolip import encoders

    encoder, load = encoders.load("offline", "cpu"), encoders.load

    def shared(name: str, device: str = "auto") -> object:
        return encoder if name == "offline" else load(name, device)

    encoders.load = shared
    return encoder
