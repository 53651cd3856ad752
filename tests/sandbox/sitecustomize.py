"""Close the network and the file system outside the temporary folder, in every Python process of a test run.

`conftest.py` imports this file and puts its folder on PYTHONPATH, so that processes which tests start import
it as well. Calls below Python (a browser, a compiled library) are not seen; for those, `conftest.py` compares
the home folder before and after the run.
"""

import os
import platform
import sys
import tempfile
import threading
from ipaddress import ip_address
from pathlib import Path
from typing import Any

CLONE = str(Path(__file__).resolve().parents[2]) + os.sep
TEMPORARY = os.path.realpath(tempfile.gettempdir()) + os.sep
# Beside the temporary folder: devices, and what pytest caches beside the code.
ALLOWED = ("/dev/", "/proc/self/", CLONE + ".pytest_cache", CLONE + "pytest-cache-files-")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Which argument of an audit event is the path that changes, and which the folder that it is relative to.
CHANGES = {
    "os.mkdir": (0, 2),
    "os.remove": (0, 1),
    "os.rmdir": (0, 1),
    "os.rename": (1, 3),
    "os.link": (1, 3),
    "os.symlink": (1, 2),
    "os.chmod": (0, 2),
    "os.truncate": (0, None),
}


attempts: list[str] = []  # to leave the sandbox, which the code under test may have handled as an error


class SandboxError(Exception):
    """A test wrote outside the temporary folder, or called a host that is not this machine."""

    def __init__(self, attempt: str) -> None:
        super().__init__(attempt)
        attempts.append(attempt)


def check(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse a write or a connection that leaves the sandbox; called by Python at every audit event."""
    if event == "open":
        path, mode, flags = arguments
        if flags & WRITES if flags is not None else set(mode or "r") & set("wax+"):
            check_path(event, path)
    elif event in CHANGES:
        path, folder = CHANGES[event]
        relative = folder is not None and arguments[folder] != -1  # to a folder that was opened before
        if not relative and not (event == "os.mkdir" and os.path.isdir(arguments[0])):
            check_path(event, arguments[path], follow=event in ("os.chmod", "os.truncate"))
    elif event == "socket.connect":
        address = arguments[1]
        if isinstance(address, tuple):
            check_host(event, address[0])
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        check_host(event, arguments[0])


def check_path(event: str, path: Any, follow: bool = True) -> None:
    """Refuse a path outside the allowed folders; a file descriptor was checked when it was opened."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return
    try:
        folder, name = os.path.split(os.path.abspath(os.fsdecode(path)))
        place = os.path.join(os.path.realpath(folder), name)
        place = os.path.realpath(place) if follow else place
    except (OSError, ValueError):  # not a path at all: the call itself says so
        return
    if "__pycache__" in place or (place + os.sep).startswith(ALLOWED):
        return
    in_clone = place.startswith(CLONE) and not TEMPORARY.startswith(CLONE)
    if (place + os.sep).startswith(TEMPORARY) and not in_clone:  # the clone may be in the temporary folder
        return
    if os.access(nearest_folder(place), os.W_OK):  # elsewhere, the system refuses it
        raise SandboxError(f"{event} {place}")


def nearest_folder(place: str) -> str:
    """The innermost folder above a path that exists."""
    while not os.path.isdir(place):
        above = os.path.dirname(place)
        if above == place:
            break
        place = above
    return place


def check_host(event: str, host: Any) -> None:
    """Refuse connections to other addresses than loopback, and lookups of other names than our own."""
    host = host.decode() if isinstance(host, bytes) else host
    try:
        address = ip_address((host or "127.0.0.1").partition("%")[0])
        allowed = event != "socket.connect" or address.is_loopback or address.is_unspecified
    except ValueError:
        allowed = host in ("localhost", platform.node())
    if not allowed:
        raise SandboxError(f"{event} {host}")


def trace_threads_in_turn() -> None:
    """Let one thread at a time install what traces it for coverage.

    Installing calls `check`, where Python may switch to another thread; up to 3.11, installing fails there.
    """
    lock, install, trace = threading.RLock(), sys.settrace, threading.gettrace()

    def settrace(function: Any) -> None:
        with lock:
            install(function)

    def trace_thread(*event: Any) -> Any:
        with lock:
            return trace(*event)

    sys.settrace = settrace
    threading.settrace(trace_thread)


if os.environ.get("PROLIP_TEST_SANDBOX"):
    if sys.version_info < (3, 12) and threading.gettrace():
        trace_threads_in_turn()
    sys.addaudithook(check)
