"""Models of transformers: `hf:ID-or-PATH`, for CLIPModel and SiglipModel.

SigLIP 2 at a fixed resolution is a SiglipModel too; its NaFlex variant, with its own way to cut images into
patches, is not supported. Weights are read from safetensors only, and no code from a repository is run.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prolip.core.errors import ModelError, UsageError
from prolip.encoders.base import choose_torch_device
from prolip.encoders.hub import cached_revision, fetch_folder, loading, require_folder
from prolip.encoders.preprocess import Preprocess
from prolip.encoders.trainable_towers import Towers
from prolip.io.environment import require

if TYPE_CHECKING:
    from torch import Tensor

    from prolip.encoders.split_tower_torch import SplitTower
    from prolip.encoders.tower_encoder_torch import TowerEncoder

_FILES = {
    "a configuration": ("config.json",),
    "weights in safetensors": ("model*.safetensors",),
    "an image processor": ("preprocessor_config.json", "processor_config.json"),
    "a tokenizer": ("tokenizer.json", "vocab.json", "spiece.model", "tokenizer.model"),
}

_HUB_FILES = ("*.json", "model*.safetensors", "vocab*", "merges.txt", "*.model")

# Weights alone do not say what they compute.
_SETTINGS = (
    "num_attention_heads",
    "hidden_act",
    "layer_norm_eps",
    "patch_size",
    "image_size",
    "eos_token_id",
)


def load(rest: str, device: str) -> TowerEncoder:
    """Load a model by the part of its name after `hf:`."""
    if not rest:
        raise UsageError("hf: needs a model: write hf:ID or hf:FOLDER, like hf:openai/clip-vit-base-patch32")
    torch, transformers = require("torch", "hf"), require("transformers", "hf")
    device = choose_torch_device(device)

    from prolip.encoders.split_tower_torch import split_at_linear
    from prolip.encoders.tower_encoder_torch import Anatomy, TowerEncoder, fingerprint, noise

    name, folder = f"hf:{rest}", Path(rest).expanduser()
    local = folder.is_dir() or rest.startswith((".", "/", "~")) or rest.count("/") > 1
    if local:
        require_folder(folder, _FILES)
        folder = folder.resolve()
        name = f"hf:{folder}"  # a saved model finds its base from any folder
    with loading(name, local):
        if not local:
            folder = fetch_folder(rest, _FILES, _HUB_FILES)
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
        kind = _model_class(name, config.model_type, transformers)
        model = kind.from_pretrained(folder, config=config, use_safetensors=True, dtype=torch.float32)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        processor, _ = transformers.ImageProcessingMixin.get_image_processor_dict(folder)
    model.to(device).eval().requires_grad_(False)
    preprocess = Preprocess.from_processor(processor, config.model_type, name)
    if preprocess.size != config.vision_config.image_size:
        raise ModelError(
            f"{name}: the image processor makes images of {preprocess.size} pixels, "
            f"the model takes {config.vision_config.image_size}"
        )

    # CLIP reads from left to right up to its end token, so that padding changes nothing and less of it is
    # faster; SigLIP was trained to attend to all of its padding.
    padding = "longest" if config.model_type == "clip" else "max_length"

    def tokenize(prompts: list[str]) -> Tensor:
        length = config.text_config.max_position_embeddings
        batch = tokenizer(prompts, padding=padding, max_length=length, truncation=True, return_tensors="pt")
        ids: Tensor = batch["input_ids"]
        return ids

    probes = noise(preprocess, device), tokenize(["a photo of a cat."]).to(device)

    def split(model: Any) -> tuple[SplitTower, SplitTower]:
        return (
            split_at_linear(model, partial(_embed_image, model), probes[0]),
            split_at_linear(model, partial(_embed_text, model), probes[1]),
        )

    settings = {
        key: [getattr(part, key, None) for part in (config.vision_config, config.text_config)]
        for key in _SETTINGS
    }
    revision = None if local else cached_revision(rest, "config.json")
    sigmoid = config.model_type == "siglip"
    anatomy = Anatomy("hf", split, _towers, tokenize, model.config, tokenizer, processor, sigmoid)
    digest = fingerprint(model, {**settings, "preprocess": preprocess.config()})
    return TowerEncoder(name, model, anatomy, preprocess, device, digest, revision)


def _embed_image(model: Any, pixels: Tensor) -> Tensor:
    rows: Tensor = model.get_image_features(pixel_values=pixels).pooler_output
    return rows


def _embed_text(model: Any, tokens: Tensor) -> Tensor:
    rows: Tensor = model.get_text_features(input_ids=tokens).pooler_output
    return rows


def _towers(model: Any) -> Towers:
    vision = model.vision_model
    clip = hasattr(model, "visual_projection")  # SigLIP pools by attention, and ends there

    def embed_local(pixels: Tensor) -> Tensor:
        hidden = vision(pixel_values=pixels).last_hidden_state[:, 1:]
        rows: Tensor = model.visual_projection(vision.post_layernorm(hidden))
        return rows

    blocks = tuple(vision.encoder.layers)
    last = f"vision_model.encoder.layers.{len(blocks) - 1}."
    return Towers(
        model,
        partial(_embed_image, model),
        lambda tokens: _embed_text(model, tokens["input_ids"]),
        words=model.text_model.embeddings.token_embedding,
        image_prefixes=("vision_model.", "visual_projection."),
        last_layer_prefixes=(last,) if clip else (last, "vision_model.head."),
        image_blocks=blocks,
        text_blocks=tuple(model.text_model.encoder.layers),
        class_token=vision.pre_layrnorm if clip else None,
        embed_local=embed_local if clip else None,
    )


def _model_class(name: str, model_type: str, transformers: Any) -> Any:
    classes = {"clip": transformers.CLIPModel, "siglip": transformers.SiglipModel}
    if model_type not in classes:
        raise ModelError(f"{name} is a model of type {model_type!r}; supported: {', '.join(classes)}")
    return classes[model_type]
