"""An adapter: what was learned and nothing else, with the name of the model that it belongs to.

    prolip_adapter.json           the base model, its revision and hashes; method, classes, templates
    prolip_adapter.safetensors    the tensors that differ, under the base model's own names

About 1.5 MB for a ViT-B. It is put into the base model by `load_adapter`, or by `apply_adapter` into a model
that open_clip or transformers has loaded. A base model with other weights is refused.

The names are our own: transformers takes an adapter_config.json for one of PEFT, and would not load a
checkpoint that lies beside it.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from prolip.core.arrays import Array, to_torch
from prolip.core.errors import ModelError, SavedModelError
from prolip.core.files import sha256_file, sha256_tensors, write_json, write_tensors
from prolip.encoders.base import Encoder
from prolip.export.checkpoint import library_model
from prolip.export.saved import load_base, read_checked

CONFIG, TENSORS = "prolip_adapter.json", "prolip_adapter.safetensors"
FORMAT = 1


def write_adapter(folder: Path, encoder: Encoder, changes: dict[str, Array], about: dict[str, Any]) -> None:
    """Write the two files into a folder that is there; `about` is kept along."""
    write_tensors(folder / TENSORS, changes)
    model = library_model(encoder)
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


def load_adapter(folder: str | Path, device: str = "auto") -> Encoder:
    """The base model with the adapter in it.

    `head`, `text_head` and `scale` of the encoder are the adapted ones; for open_clip and transformers,
    `encoder.model` is the library's own model, adapted too.
    """
    config, changes = read_adapter(Path(folder))
    encoder = load_base(folder, config["base_model"], config["fingerprint"], device)
    encoder.unfold(changes)
    return encoder


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
    model.load_state_dict({name: to_torch(array) for name, array in changes.items()}, strict=False)
    return model


def read_adapter(folder: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """The configuration and the tensors of an adapter folder, checked."""
    for name in (CONFIG, TENSORS):
        if not (folder / name).is_file():
            raise SavedModelError(f"{folder} is no adapter: {name} is missing")
    config: Any = None
    with contextlib.suppress(ValueError):
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    if not isinstance(config, dict) or config.get("adapter_type") != "prolip":
        raise SavedModelError(f"{folder / CONFIG} is not the JSON of an adapter of prolip")
    if config["format"] > FORMAT:
        raise SavedModelError(f"{folder} was written by a newer version: upgrade prolip")
    return config, read_checked(folder / TENSORS, config["sha256"])
