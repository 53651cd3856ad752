"""Load the base model of a saved model, only where that is safe.

A saved model names its base: a hub's id, or a path. An untrusted file could name anything, and loading would
download or open it. So a base is loaded if its weights are installed with this package (`offline`), if it is
a model of the hub that the user has downloaded, if it was used here before with the same weights, or if the
user allows it: by naming it (`base`), or by trusting the file (`trust_base`). Bases that were used here are
recorded in the cache folder.
"""

import hashlib
from contextlib import suppress
from pathlib import Path

from prolip import encoders
from prolip.core.errors import ModelError, ProlipError, UsageError
from prolip.encoders.base import Encoder
from prolip.io.files import cache_dir
from prolip.io.writing import write_json


def load_base(
    path: str | Path,
    name: str,
    fingerprint: str,
    device: str = "auto",
    *,
    base: str | Encoder | None = None,
    trust_base: bool = False,
) -> Encoder:
    """Load the base model of the model saved at `path`; other weights than those of the fit are an error.

    `name` and `fingerprint` are those in the saved model, `base` is what the user gives: a name, or an
    encoder that is loaded already. `trust_base` loads whatever the saved model names.
    """
    if base is None and not (trust_base or is_known(name, fingerprint)):
        raise UsageError(
            f"{path} would open or download {name!r}, its base model, which was never used here: if you want "
            f"that, pass trust_base=True, or name the base yourself, base={quoted(name)}"
        )
    source = name if base is None else base
    try:
        encoder = source if isinstance(source, Encoder) else encoders.load(source, device)
    except ModelError as error:
        raise ModelError(f"{path} needs its base model, {source}: {error}") from error
    if encoder.fingerprint != fingerprint:
        if encoders.is_packaged(name) and base is None:
            raise ModelError(
                f"{path} was fitted on an earlier offline encoder, which has changed since: fit it again"
            )
        raise ModelError(
            f"{path} was fitted on {name} with weights {fingerprint}, "
            f"but the weights found here are {encoder.fingerprint}"
        )
    remember(encoder)
    return encoder


def is_known(name: str, fingerprint: str) -> bool:
    """Whether a base model is installed, downloaded, or was used here before with these weights."""
    return encoders.is_packaged(name) or _note(name, fingerprint).is_file() or encoders.is_downloaded(name)


def remember(encoder: Encoder) -> None:
    """Record that a base model is used here; where the cache cannot be written, it has to be named again."""
    if encoders.is_packaged(encoder.name) or not encoder.fingerprint:
        return
    note = _note(encoder.name, encoder.fingerprint)
    if not note.is_file():
        with suppress(ProlipError):
            write_json(note, {"model": encoder.name, "fingerprint": encoder.fingerprint})


def _note(name: str, fingerprint: str) -> Path:
    digest = hashlib.sha256(f"{name}\n{fingerprint}".encode("utf-8", "backslashreplace")).hexdigest()
    return cache_dir() / "bases" / f"{digest[:32]}.json"


def quoted(name: str) -> str:
    """Quote a name, as the command line expects it in messages."""
    return '"' + name.replace('"', "'") + '"'
