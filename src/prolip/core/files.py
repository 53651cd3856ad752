"""Files at the edges: where caches live, hashes, and writes that happen whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from prolip.core.arrays import Array, to_numpy
from prolip.core.errors import ProlipError, SavedModelError


def cache_dir() -> Path:
    """Where features and derived weights are kept: $PROLIP_CACHE, or the user's cache folder."""
    if named := os.environ.get("PROLIP_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prolip"


def write_atomic(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it there.

    A reader sees the old file or the new one, never a part; after a failure nothing is left behind.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(handle)
        temporary = Path(name)
        write(temporary)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_folder(path: Path, fill: Callable[[Path], None], keep: bool = False) -> None:
    """Let `fill` write files into a temporary folder beside `path`, then rename it there.

    A folder that stands at `path` is replaced once the new one is whole, and stays after a failure. With
    `keep`, only its files of the same names are replaced.
    """
    parent = path.absolute().parent
    temporary: Path | None = None
    try:
        parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=parent, prefix=f".{path.name}."))
        fill(temporary)
        _usual_permissions(temporary)
        if keep and path.is_dir():
            for file in sorted(temporary.iterdir()):
                file.replace(path / file.name)
            return
        old = temporary.with_name(f"{temporary.name}.old")
        if path.exists():
            path.replace(old)
        try:
            temporary.replace(path)
        except OSError:
            if old.exists():
                old.replace(path)
            raise
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def write_error(path: Path, error: OSError, remaining: str = "nothing was written") -> ProlipError:
    """What to tell when a path cannot be written; `remaining` is what is there after a full disk."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return ProlipError(f"no space left on the disk while writing {path}; {remaining}")
    return ProlipError(f"cannot write {path}: {error.strerror or error}")


def write_bytes(path: Path, payload: bytes) -> None:
    """Write a file, whole or not at all."""

    def write(temporary: Path) -> None:
        temporary.write_bytes(payload)

    write_atomic(path, write)


def write_json(path: Path, value: Any) -> None:
    """Write JSON for people: indented, keys in the order given."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_bytes(path, text.encode())


def write_tensors(path: Path, tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> None:
    """Write arrays, NumPy's or torch's, as a safetensors file."""
    from safetensors.numpy import save

    payload = save({name: np.asarray(to_numpy(x), order="C") for name, x in tensors.items()}, metadata)
    write_bytes(path, payload)


def read_tensors(path: Path) -> dict[str, Array]:
    """The arrays of a safetensors file; bfloat16, which NumPy does not have, is refused."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(path.read_bytes())
    except (SafetensorError, KeyError, ValueError) as error:
        raise SavedModelError(f"{path} cannot be read: {error}") from error
    except OSError as error:
        raise SavedModelError(f"{path} cannot be read: {error.strerror or error}") from error


@contextmanager
def appending(path: Path) -> Iterator[TextIO]:
    """A file to add lines to, which ends with a whole line whatever happens."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            drop_partial_line(path)
        with path.open("a", encoding="utf-8", newline="") as file:
            yield file
    except OSError as error:
        with suppress(OSError):
            drop_partial_line(path)
        raise write_error(path, error, "the lines before that are kept") from error


def drop_partial_line(path: Path) -> None:
    """Cut off what an interrupted run left of a last line, before more lines are appended."""
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - (1 << 20))
        file.seek(start)
        tail = file.read()
        if tail and not tail.endswith(b"\n"):
            file.truncate(start + tail.rfind(b"\n") + 1)


def readable(name: str) -> str:
    """A file name as text that can be written anywhere: bytes that are no UTF-8 become escapes."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def sha256_file(path: Path) -> str:
    """The SHA-256 of a file's content, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def sha256_tensors(named: Iterable[tuple[str, Any]]) -> str:
    """A SHA-256 over names, shapes, types and values of arrays: equal weights, equal digest."""
    digest = hashlib.sha256()
    for name, tensor in sorted(named, key=lambda item: item[0]):
        values = np.asarray(to_numpy(tensor), order="C")
        digest.update(f"{name}:{values.dtype}:{values.shape};".encode())
        digest.update(values.reshape(-1).view(np.uint8).data if values.size else b"")
    return digest.hexdigest()


def _usual_permissions(folder: Path) -> None:
    """The user's usual permissions: temporary folders, and some libraries' files, are their owner's only."""
    mask = _umask()
    folder.chmod(0o777 & ~mask)
    for path in folder.rglob("*"):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
