"""An adapter: the learned tensors alone, with the name of the model that they belong to.

    prolip_adapter.json           the base model, its revision and hashes; method, classes, templates
    prolip_adapter.safetensors    the tensors that differ, under the base model's own names

About 1.5 MB for a ViT-B. `load_adapter` loads it with its base model, `apply_adapter` puts it into a model
that open_clip or transformers has loaded. A base model with other weights is rejected.

The file names are not PEFT's: transformers would take an adapter_config.json for one of PEFT, and not load a
checkpoint beside it.
"""

import hashlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core.arrays import Array, to_numpy, to_torch
from prolip.core.errors import ModelError, SavedModelError
from prolip.encoders.base import Encoder
from prolip.export.base_model import load_base
from prolip.export.saved import read_checked
from prolip.io.files import sha256_file, sha256_tensors
from prolip.io.reading import Unreadable, read_json
from prolip.io.writing import write_json, write_tensors

CONFIG, TENSORS = "prolip_adapter.json", "prolip_adapter.safetensors"
FORMAT = 1


def write_adapter(folder: Path, encoder: Encoder, changes: dict[str, Array], about: dict[str, Any]) -> None:
    """Write the two files into an existing folder; `about` is added to the configuration."""
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
        "projection_sha256": _digest(encoder.head.weight),
        "sha256": sha256_file(folder / TENSORS),
        **about,
    }
    write_json(folder / CONFIG, config)


def load_adapter(folder: str | Path, device: str = "auto", *, base: str | Encoder | None = None) -> Encoder:
    """Load the base model with the adapter in it.

    `head`, `text_head` and `scale` of the encoder are the adapted ones; for open_clip and transformers,
    `encoder.model` is the library's own model, adapted too. `base` is that of `load_base`.
    """
    config, changes = read_adapter(Path(folder))
    name, fingerprint = config["base_model"], config["fingerprint"]
    encoder = load_base(folder, name, fingerprint, device, base=base)
    _check(folder, changes, _replaceable(encoder))
    return encoder.with_folded(changes)


def apply_adapter(model: Any, folder: str | Path) -> Any:
    """Put an adapter into a model that open_clip or transformers has loaded in float32; return the model.

    An adapter of an ONNX model fits the same model in either library: the one whose projection has the same
    numbers.
    """
    config, changes = read_adapter(Path(folder))
    expected = config["base_weights_sha256"]
    if expected is None:
        changes = _renamed(model, changes, config, folder)
    elif (actual := sha256_tensors(model.state_dict().items())) != expected:
        raise ModelError(
            f"{folder} was fitted on {config['base_model']} with weights {expected} in float32, "
            f"but this model's weights are {actual}"
        )
    _check(folder, changes, {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()})
    model.load_state_dict({name: to_torch(array) for name, array in changes.items()}, strict=False)
    return model


def _renamed(
    model: Any, changes: dict[str, Array], config: dict[str, Any], folder: str | Path
) -> dict[str, Array]:
    """Return the changes of an encoder that is not a library's, under the names of a library's model."""
    if set(changes) - {"head.weight", "head.bias", "scale"}:
        raise ModelError(f"{folder} changes more than the projection: load it with load_adapter")
    weight = changes.get("head.weight")
    found: dict[str, Array] = {}
    for name, tensor in model.state_dict().items():
        array = to_numpy(tensor) if tensor.ndim == 2 else None
        if array is None or weight is None:
            continue
        if array.shape == weight.shape and _digest(array) == config.get("projection_sha256"):
            found[name] = weight
        elif array.shape == weight.shape[::-1] and _digest(array.T) == config.get("projection_sha256"):
            found[name] = np.ascontiguousarray(weight.T)
    if len(found) != (weight is not None) or "logit_scale" not in model.state_dict():
        raise ModelError(f"{folder} belongs to {config['base_model']}: this model has another projection")
    if "head.bias" in changes:
        bias = {f"{name.removesuffix('weight')}bias": changes["head.bias"] for name in found}
        if not bias or set(bias) - set(model.state_dict()):
            raise ModelError(f"{folder} changes a bias that this model does not have")
        found |= bias
    shape = tuple(model.state_dict()["logit_scale"].shape)
    return {**found, "logit_scale": np.full(shape, np.log(changes["scale"].item()), np.float32)}


def _digest(weight: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(weight, np.dtype("<f4")).tobytes()).hexdigest()


def _replaceable(encoder: Encoder) -> dict[str, tuple[int, ...]]:
    """Return the tensors of a model that an adapter may change, with their shapes."""
    head, text_head = encoder.head, encoder.text_head
    shapes: dict[str, tuple[int, ...]] = {}
    for pair in ((head, text_head), (replace(head), text_head), (head, replace(text_head))):
        with suppress(ModelError):  # no linear map at the end of this tower
            shapes |= {name: array.shape for name, array in encoder.folded(*pair, encoder.scale).items()}
    return shapes


def _check(folder: str | Path, changes: dict[str, Array], shapes: dict[str, tuple[int, ...]]) -> None:
    """Reject tensors that the model does not have, or that are not finite."""
    scale = next((name for name in ("scale", "logit_scale") if name in shapes), "scale")
    for name, array in {scale: None, **changes}.items():
        if (
            array is None
            or shapes.get(name) != array.shape
            or array.dtype != np.float32
            or not np.isfinite(array).all()
        ):
            raise SavedModelError(f"{folder} is damaged: the model has no such tensor {name!r}")


def read_adapter(folder: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read and check the configuration and the tensors of an adapter folder."""
    for name in (CONFIG, TENSORS):
        if not (folder / name).is_file():
            raise SavedModelError(f"{folder} is not an adapter: {name} is missing", "missing")
    try:
        config = read_json(folder / CONFIG)
    except Unreadable as error:
        raise SavedModelError(f"{folder / CONFIG} is damaged: {error.reason}") from error
    if not isinstance(config, dict) or config.get("adapter_type") != "prolip":
        raise SavedModelError(f"{folder / CONFIG} is not the JSON of an adapter of prolip")
    if config.get("format") != FORMAT:
        raise SavedModelError(
            f"{folder} was written by another version: export it again, or upgrade prolip", "version"
        )
    words = ("base_model", "fingerprint", "sha256")
    if not all(isinstance(config.get(name), str) for name in words) or "base_weights_sha256" not in config:
        raise SavedModelError(f"{folder / CONFIG} is damaged: it does not describe the base model")
    return config, read_checked(folder / TENSORS, config["sha256"])
