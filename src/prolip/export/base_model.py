"""Load the base model of a saved model.

A saved model names its base: a short name, an id of a hub, or a path. Loading what a file names downloads
nothing: a base that is not on this machine has to be named by the user.
"""

from pathlib import Path

from prolip import encoders
from prolip.core.errors import ModelError
from prolip.encoders.base import Encoder
from prolip.encoders.hub import cache_only


def load_base(
    path: str | Path, name: str, fingerprint: str, device: str = "auto", *, base: str | Encoder | None = None
) -> Encoder:
    """Load the base model of the model saved at `path`; other weights than those of the fit are an error.

    `name` and `fingerprint` are those in the saved model, `base` is what the user gives: a name, which may be
    downloaded, or an encoder that is loaded already.
    """
    try:
        if isinstance(base, Encoder):
            encoder = base
        else:
            encoder = load_named(name, device) if base is None else encoders.load(base, device)
    except ModelError as error:
        advice = f'; base="{name}" downloads it' if base is None else ""
        raise ModelError(f"{path} needs its base model, {base or name}: {error}{advice}") from error
    if encoder.fingerprint != fingerprint:
        raise ModelError(
            f"{path} was fitted on {name} with weights {fingerprint}, but the weights found here are "
            f"{encoder.fingerprint}: fit it again, or name its base model"
        )
    return encoder


def load_named(name: str, device: str = "auto") -> Encoder:
    """Load an encoder that a file names, if it is on this machine: nothing is downloaded."""
    with cache_only():
        return encoders.load(name, device)
