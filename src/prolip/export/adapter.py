"""An adapter: what was learned and nothing else, with the name of the model that it belongs to.

    prolip_adapter.json           the base model, its revision and hashes; method, classes, templates
    prolip_adapter.safetensors    the tensors that differ, under the base model's own names

About 1.5 MB for a ViT-B. It is put into the base model by `load_adapter`, or by `apply_adapter` into a model
that open_clip or transformers has loaded. A base model with other weights is refused.

The names are our own: transformers takes an adapter_config.json for one of PEFT, and would not load a
checkpoint that lies beside it.
"""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core.arrays import Array, to_torch
from prolip.core.errors import ModelError, SavedModelError
from prolip.encoders.base import Encoder
from prolip.export.base_model import load_base, remember
from prolip.export.saved import read_checked
from prolip.io.files import sha256_file, sha256_tensors
from prolip.io.reading import Unreadable, read_json
from prolip.io.writing import write_json, write_tensors

CONFIG, TENSORS = "prolip_adapter.json", "prolip_adapter.safetensors"
FORMAT = 1


def write_adapter(folder: Path, encoder: Encoder, changes: dict[str, Array], about: dict[str, Any]) -> None:
    """Write the two files into a folder that is there; `about` is kept along."""
    write_tensors(folder / TENSORS, changes)
    model = getattr(encoder, "model", None)
    weights = None if model is None else sha256_tensors(model.state_dict().items())
    config = {
        "adapter_type": "prolip",
        "format": FORMAT,
        "base_model_name_or_path": encoder.name.partition(":")[2] or encoder.name,
        "base_model": encoder.name,
        "revision": encoder.revision,
        "fingerprint": encoder.fingerprint,
        "base_weights_sha256": weights,
        "sha256": sha256_file(folder / TENSORS),
        **about,
    }
    write_json(folder / CONFIG, config)
    remember(encoder)


def load_adapter(
    folder: str | Path, device: str = "auto", *, base: str | Encoder | None = None, trust_base: bool = False
) -> Encoder:
    """The base model with the adapter in it.

    `head`, `text_head` and `scale` of the encoder are the adapted ones; for open_clip and transformers,
    `encoder.model` is the library's own model, adapted too. A base model that was never used here is loaded
    only if you name it (`base`) or trust the folder (`trust_base`), which could name any; a `base` that is an
    encoder is itself adapted.
    """
    config, changes = read_adapter(Path(folder))
    name, fingerprint = config["base_model"], config["fingerprint"]
    encoder = load_base(folder, name, fingerprint, device, base=base, trust_base=trust_base)
    _check(folder, changes, _replaceable(encoder))
    return encoder.with_folded(changes)


def apply_adapter(model: Any, folder: str | Path) -> Any:
    """Put an adapter into a model that open_clip or transformers has loaded in float32; returns the model."""
    config, changes = read_adapter(Path(folder))
    expected = config["base_weights_sha256"]
    if expected is None:
        raise ModelError(f"{folder} belongs to {config['base_model']}, which is loaded with load_adapter")
    found = sha256_tensors(model.state_dict().items())
    if found != expected:
        raise ModelError(
            f"{folder} was fitted on {config['base_model']} with weights {expected} in float32, "
            f"but this model's weights are {found}"
        )
    _check(folder, changes, {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()})
    model.load_state_dict({name: to_torch(array) for name, array in changes.items()}, strict=False)
    return model


def _replaceable(encoder: Encoder) -> dict[str, tuple[int, ...]]:
    """The tensors of a model that an adapter may change, and their shapes."""
    head, text_head = encoder.head, encoder.text_head
    shapes: dict[str, tuple[int, ...]] = {}
    for pair in ((head, text_head), (replace(head), text_head), (head, replace(text_head))):
        with suppress(ModelError):  # no linear map at the end of this tower
            shapes |= {name: array.shape for name, array in encoder.folded(*pair, encoder.scale).items()}
    return shapes


def _check(folder: str | Path, changes: dict[str, Array], shapes: dict[str, tuple[int, ...]]) -> None:
    """Refuse tensors that the model does not have, and what are no finite numbers."""
    scale = next((name for name in ("scale", "logit_scale") if name in shapes), "scale")
    for name, array in {scale: None, **changes}.items():
        if (
            array is None
            or shapes.get(name) != array.shape
            or array.dtype != np.float32
            or not np.isfinite(array).all()
        ):
            raise SavedModelError(f"{folder} is damaged: its tensor {name!r} does not belong to the model")


def read_adapter(folder: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """The configuration and the tensors of an adapter folder, checked."""
    for name in (CONFIG, TENSORS):
        if not (folder / name).is_file():
            raise SavedModelError(f"{folder} is no adapter: {name} is missing")
    try:
        config = read_json(folder / CONFIG)
    except Unreadable as error:
        raise SavedModelError(f"{folder / CONFIG} is damaged: {error.reason}") from error
    if not isinstance(config, dict) or config.get("adapter_type") != "prolip":
        raise SavedModelError(f"{folder / CONFIG} is not the JSON of an adapter of prolip")
    if config.get("format") != FORMAT:
        raise SavedModelError(f"{folder} was written by another version: export it again, or upgrade prolip")
    words = ("base_model", "fingerprint", "sha256")
    if not all(isinstance(config.get(name), str) for name in words) or "base_weights_sha256" not in config:
        raise SavedModelError(
            f"{folder / CONFIG} is damaged: it lacks what an adapter says of its base model"
        )
    return config, read_checked(folder / TENSORS, config["sha256"])
