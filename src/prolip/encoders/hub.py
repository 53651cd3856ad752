"""Load models from a hub by their libraries, with quick failures of one line."""

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prolip.core.errors import ModelError, ProlipError, first_line

_TIMEOUT_SECONDS = 5
_CACHE_ONLY = threading.Lock()  # what it sets belongs to the whole process


@contextmanager
def loading(name: str, local: bool) -> Iterator[None]:
    """Load a model by a library: quietly, without its retries, every failure a `ModelError` of one line.

    The hub is contacted once. If it does not respond, only its cache is used, so that a model that was loaded
    before still loads without delay, and any other fails without delay.
    """
    import huggingface_hub.constants as hub

    hub.HF_HUB_DISABLE_TELEMETRY = True  # nothing but the download leaves this machine
    was_offline = hub.HF_HUB_OFFLINE
    failure = None if local or was_offline else _hub_failure()
    hub.HF_HUB_OFFLINE = was_offline or local or failure is not None
    try:
        with quiet():
            yield
    except ProlipError:
        raise
    except Exception as error:  # loaders raise whatever their file formats raise
        if local or not hub.HF_HUB_OFFLINE:
            raise ModelError(f"cannot load {name}: {first_line(error)}") from error
        why = first_line(failure) if failure else "HF_HUB_OFFLINE is set"
        raise ModelError(
            f"cannot load {name}: the model hub cannot be reached ({why}) and the model is not in its cache; "
            "the model 'offline' needs no hub"
        ) from error
    finally:
        hub.HF_HUB_OFFLINE = was_offline


@contextmanager
def cache_only() -> Iterator[None]:
    """Load models from the hub's cache alone: what is not there is an error, and nothing is requested."""
    import huggingface_hub.constants as hub

    with _CACHE_ONLY:
        was_offline, hub.HF_HUB_OFFLINE = hub.HF_HUB_OFFLINE, True
        try:
            yield
        finally:
            hub.HF_HUB_OFFLINE = was_offline


def _hub_failure() -> Exception | None:
    """Return the error of a request to the hub; None if it responds, whatever the response."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=_TIMEOUT_SECONDS)
    except Exception as error:  # the errors of a proxy, of TLS and of name lookup share no base
        return error
    return None


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
        if isinstance(path, str) and (
            found := re.search(r"snapshots/([0-9a-f]{40})/", Path(path).as_posix())
        ):
            return found[1]
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
