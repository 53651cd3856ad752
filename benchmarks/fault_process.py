"""Commands in processes that may be killed: cheap, as they are forked from one that has the encoder loaded.

A child runs the real command line. It can be killed at its n-th change of a file, before the change is made
or in the middle of a write, or after a while; and it is ended after `PATIENCE` seconds, which is a hang.
"""

from __future__ import annotations

import mmap
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 20.0  # seconds
NOBODY = 65534
# What Python tells of before it does it. A folder is exchanged by a function of the C library.
CHANGES = (
    "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.link", "shutil.rmtree",
    "tempfile.mkstemp", "tempfile.mkdtemp",
)  # fmt: skip


@dataclass(frozen=True)
class Ran:
    """How a child ended: its exit code (negative for a signal), what it said, its changes, its seconds."""

    code: int
    said: str
    changes: int
    seconds: float
    hung: bool = False

    @property
    def crashed(self) -> bool:
        """Whether it ended in a traceback."""
        return "Traceback (most recent call last)" in self.said


class Child:
    """A function in a forked process.

    `kill_at` is the change of a file at which it dies, `limit` the bytes that a file may have.
    """

    def __init__(
        self,
        work: Callable[[], None],
        kill_at: int | None = None,
        limit: int | None = None,
        user: int | None = None,
    ) -> None:
        self._count = mmap.mmap(-1, 8)  # shared with the child
        self._said, said = os.pipe()
        self.began = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _be_child(work, said, self._count, kill_at, limit, user)
        os.close(said)
        os.set_blocking(self._said, False)

    def kill(self) -> None:
        """End it at once."""
        os.kill(self.pid, signal.SIGKILL)

    @staticmethod
    def sleep_until(moment: float) -> None:
        """Wait for a moment of `time.monotonic`."""
        time.sleep(max(0.0, moment - time.monotonic()))

    def wait(self, patience: float = PATIENCE) -> Ran:
        """How it ended."""
        said, hung = bytearray(), False
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            with suppress(BlockingIOError):
                while part := os.read(self._said, 1 << 16):
                    said += part
            if pid:
                break
            if time.monotonic() - self.began > patience and not hung:
                hung = True
                self.kill()
            time.sleep(0.002)
        os.close(self._said)
        code, changes = os.waitstatus_to_exitcode(status), int.from_bytes(self._count[:], "little")
        seconds = time.monotonic() - self.began
        return Ran(code, said.decode(errors="replace"), changes, seconds, hung)


def _be_child(
    work: Callable[[], None],
    said: int,
    count: mmap.mmap,
    kill_at: int | None,
    limit: int | None,
    user: int | None,
) -> None:
    code = 70
    try:
        for stream in (1, 2):
            os.dup2(said, stream)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        _count_changes(count, kill_at)
        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        if user is not None:
            os.setgid(user)
            os.setuid(user)
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


def _count_changes(count: mmap.mmap, kill_at: int | None) -> None:
    """Count changes of files in this process, and die at one of them."""
    write = os.write

    def change() -> bool:
        """Whether to die now."""
        now = int.from_bytes(count[:], "little") + 1
        count[:] = now.to_bytes(8, "little")
        return now == kill_at

    def hook(event: str, arguments: tuple) -> None:
        wrote = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        exchanged = event == "ctypes.dlsym" and arguments[1] in ("renameat2", "renamex_np")
        if (event in CHANGES or wrote or exchanged) and change():
            os.kill(os.getpid(), signal.SIGKILL)

    def half(handle: int, data: bytes) -> int:
        if handle > 2 and change():
            write(handle, bytes(data)[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return write(handle, data)

    sys.addaudithook(hook)
    os.write = half


def command(arguments: Sequence[object], cwd: Path, **environment: str) -> Callable[[], None]:
    """The command line as work for a child."""

    def work() -> None:
        from prolip.cli import main

        os.chdir(cwd)
        os.environ.update(environment)
        sys.argv = ["prolip", *map(str, arguments)]
        main()

    return work


def share_encoder() -> object:
    """Load the offline encoder once, for all children.

    Its session has one thread: of several, a fork would take along only the one that forks.
    """
    import onnxruntime  # noqa: F401
    import scipy.optimize  # noqa: F401

    import prolip.api.prediction_file
    import prolip.cli
    import prolip.export.adapter
    import prolip.export.onnx
    import prolip.export.reproject
    import prolip.export.write
    import prolip.features.embed  # noqa: F401
    from prolip import encoders
    from prolip.encoders import offline

    offline.cores = lambda: 1
    encoder, load = encoders.load("offline", "cpu"), encoders.load

    def shared(name: str, device: str = "auto") -> object:
        return encoder if name == "offline" else load(name, device)

    encoders.load = shared
    return encoder
