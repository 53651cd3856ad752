"""The base model of what is saved, loaded only where that is safe.

A saved model names its base: a hub's id, or a path. One that comes from a stranger could name anything, and
loading would fetch or open it. So a base is loaded if it needs neither (`offline`), if it was the base of a
model that was saved here before, with the same weights, or if the user says so: by naming it (`base`), or by
trusting the file (`trust_base`). Which bases were used here is kept in the cache folder.
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
    """The base model of what is saved at `path`; refused where its weights are not those of the fit.

    `name` and `fingerprint` are what the saved model says of it, `base` what the user says: a name, or an
    encoder that is loaded already. `trust_base` loads what the saved model names, whatever that is.
    """
    if base is None and not (trust_base or is_known(name, fingerprint)):
        raise UsageError(
            f"{path} would open or fetch {name!r}, its base model, which was never used here: if that is "
            f"what you want, pass trust_base=True, or name the base yourself, base={quoted(name)}"
        )
    asked = name if base is None else base
    try:
        encoder = asked if isinstance(asked, Encoder) else encoders.load(asked, device)
    except ModelError as error:
        raise ModelError(f"{path} needs its base model, {asked}: {error}") from error
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
    """Whether a base model comes with the program, or was used here before with these weights."""
    return encoders.is_packaged(name) or _note(name, fingerprint).is_file()


def remember(encoder: Encoder) -> None:
    """Note that a base model is used here; where nothing can be noted, it has to be named again."""
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
    """A name between the quotes that the command line looks for."""
    return '"' + name.replace('"', "'") + '"'
