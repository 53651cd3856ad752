"""Checkpoints as open_clip and transformers write them.

    open_clip       open_clip_config.json, open_clip_model.safetensors           loads with local-dir:
    transformers    config.json, model.safetensors, preprocessor_config.json     loads with from_pretrained

and a tokenizer where it is not the library's own. No file name is in both lists, so one folder can be both.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from prolip.core.arrays import Array, to_torch
from prolip.core.errors import ModelError, Parameter, UsageError, first_line
from prolip.encoders import load
from prolip.encoders.base import Encoder
from prolip.encoders.hub import cache_only, loading
from prolip.encoders.onnx_files import split_precision
from prolip.io.environment import MissingPackageError, require
from prolip.io.writing import write_json

if TYPE_CHECKING:
    from torch import Tensor

    from prolip.encoders.tower_encoder_torch import Anatomy


def require_original(encoder: Encoder, library: str, weights: str | None = None) -> str | None:
    """Return the name of the model of a library, "hf" or "open_clip", that ONNX graphs were made of.

    None if the encoder itself is a model of the library. `weights` is the name that the user gives.
    """
    if encoder.library == library:
        return None
    if encoder.files is None:
        raise UsageError(
            f"{encoder.name} is not a model of {library}: export it to {encoder.library or 'onnx'}"
        )
    if encoder.precision == "int8":
        raise ModelError(
            f"{encoder.name} is made of int8 graphs, whose features are not those of the original weights: "
            f"fit on {split_precision(encoder.name)[0]}@fp32, or export it to onnx"
        )
    name = weights or encoder.original
    if name is None or name.partition(":")[0] != library:
        example = {"hf": "hf:ID-or-FOLDER", "open_clip": "open_clip:ARCH/TAG"}[library]
        raise UsageError(
            f"name the model of {library} that {encoder.name} was made of: ", Parameter("weights", example)
        )
    return name


def load_original(encoder: Encoder, library: str, weights: str | None = None) -> Encoder:
    """Load the model of a library that ONNX graphs were made of.

    It is downloaded only if the user names it (`weights`). Whether its embeddings are those of the graphs is
    compared when the checkpoint is written.
    """
    name = require_original(encoder, library, weights)
    if name is None:
        return encoder
    try:
        with nullcontext() if weights else cache_only():
            original = load(name, "cpu")
    except ModelError as error:
        if weights or isinstance(error, MissingPackageError):
            raise
        raise ModelError(
            f"a checkpoint of {encoder.name} needs the original weights, {name}, which are not on this "
            f"machine ({first_line(error)}): download them with ",
            Parameter("weights", name),
        ) from error
    # Centre crops of the two libraries may be one pixel apart.
    if replace(original.preprocess, crop=encoder.preprocess.crop) != encoder.preprocess:
        raise ModelError(f"{name} prepares images in another way than {encoder.name}: export it to onnx")
    return original


def write_checkpoint(encoder: Encoder, changes: dict[str, Array], folder: Path) -> None:
    """Write the library's files of an encoder, with some of its tensors replaced, into an existing folder."""
    state = {name: tensor.detach().cpu() for name, tensor in encoder.model.state_dict().items()}  # type: ignore[attr-defined]
    state |= {name: to_torch(array) for name, array in changes.items()}
    anatomy = encoder.anatomy  # type: ignore[attr-defined]
    write = _write_hf if anatomy.library == "hf" else _write_open_clip
    write(anatomy, state, folder)


def load_checkpoint(library: str, folder: Path) -> Encoder:
    """Load the files of one library in a folder as an encoder, on the CPU."""
    return load(f"hf:{folder}" if library == "hf" else f"open_clip:local-dir:{folder}", "cpu")


def _write_hf(anatomy: Anatomy, state: dict[str, Tensor], folder: Path) -> None:
    torch, transformers = require("torch", "hf"), require("transformers", "hf")
    kind = {"clip": transformers.CLIPModel, "siglip": transformers.SiglipModel}[anatomy.config.model_type]
    with loading("the exported model", local=True):
        with torch.device("meta"):
            model = kind(anatomy.config)
        model.load_state_dict(state, assign=True)
        model.save_pretrained(folder)
        anatomy.tokenizer.save_pretrained(folder)
    write_json(folder / "preprocessor_config.json", anatomy.image_processor)


def _write_open_clip(anatomy: Anatomy, state: dict[str, Tensor], folder: Path) -> None:
    from safetensors.torch import save_file

    config = {"model_cfg": anatomy.config, "preprocess_cfg": anatomy.image_processor}
    write_json(folder / "open_clip_config.json", config)
    # Towers of transformers may use one tensor under two names, which safetensors refuses.
    separate = {name: tensor.clone().contiguous() for name, tensor in state.items()}
    try:
        save_file(separate, folder / "open_clip_model.safetensors", {"format": "pt"})
    except SafetensorError as error:  # a full disk
        raise OSError(first_line(error)) from error
    if anatomy.config["text_cfg"].get("hf_tokenizer_name"):
        anatomy.tokenizer.save_pretrained(folder)
