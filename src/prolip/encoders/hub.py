"""Load models by the libraries of a hub: what is in its cache first, and the hub only for what is missing."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

from prolip.core.errors import ModelError, ProlipError, first_line

# Read when huggingface_hub is imported: beside what is downloaded or uploaded, nothing is sent or requested.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

_Loaded = TypeVar("_Loaded")
_CACHE_ONLY: ContextVar[bool] = ContextVar("cache_only", default=False)


@contextmanager
def cache_only() -> Iterator[None]:
    """Load models from the hub's cache alone: what is not there is an error, and nothing is requested."""
    token = _CACHE_ONLY.set(True)
    try:
        yield
    finally:
        _CACHE_ONLY.reset(token)


def local_first(load: Callable[[bool], _Loaded]) -> _Loaded:
    """Call `load(local_files_only)`: with the cache alone, and where it lacks something, with the hub."""
    try:
        return load(True)
    except (OSError, ModelError):  # what the libraries, and `require_folder`, raise for a missing file
        if _CACHE_ONLY.get():
            raise
    return load(False)


def fetch_folder(repository: str, required: dict[str, tuple[str, ...]], patterns: Sequence[str]) -> Path:
    """Return the folder of a repository in the hub's cache, with the files of these patterns."""
    from huggingface_hub import snapshot_download

    def get(local_files_only: bool) -> Path:
        options = {"allow_patterns": list(patterns), "local_files_only": local_files_only}
        folder = Path(snapshot_download(repository, **options))
        require_folder(folder, required)
        return folder

    return local_first(get)


def refuse_download(what: str) -> None:
    """Raise within `cache_only`: what follows asks the hub."""
    if _CACHE_ONLY.get():
        raise ModelError(f"{what} would be downloaded")


@contextmanager
def loading(name: str, local: bool) -> Iterator[None]:
    """Load a model by a library: quietly, every failure a `ModelError` of one line."""
    try:
        with quiet():
            yield
    except ProlipError:
        raise
    except Exception as error:  # loaders raise whatever their file formats raise
        advice = "" if local else "; the model 'offline' needs no hub"
        raise ModelError(f"cannot load {name}: {first_line(error)}{advice}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the libraries' logging, and keep them from configuring the root logger."""
    root, handler = logging.getLogger(), logging.NullHandler()
    before = root.manager.disable
    root.addHandler(handler)
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)
        root.removeHandler(handler)


def cached_revision(repository: str, *files: str) -> str | None:
    """Return the commit that a repository's files were loaded from, by the hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    for file in files:
        path = try_to_load_from_cache(repository, file)
        if isinstance(path, str):
            return Path(path).parent.name  # the folder of a snapshot has the name of its commit
    return None


def require_folder(folder: Path, required: dict[str, tuple[str, ...]]) -> None:
    """Check that a model folder has all required files (what: any one of these file patterns)."""
    if not folder.is_dir():
        raise ModelError(f"there is no folder {folder}")
    missing = [
        f"{what} ({' or '.join(patterns)})"
        for what, patterns in required.items()
        if not any(any(folder.glob(pattern)) for pattern in patterns)
    ]
    if missing:
        raise ModelError(f"the folder {folder} lacks {', '.join(missing)}")
