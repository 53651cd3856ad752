"""Convert CLIP's ViT between open_clip and transformers: the same numbers under other names.

open_clip keeps query, key and value of an attention in one matrix [3 w, w], and the projections as matrices
[w, D] to multiply from the right; transformers has three matrices, and linear maps [D, w]. Nothing else
differs, so a conversion is exact. Models that only one of the two libraries can express are rejected.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from prolip.core.errors import ModelError
from prolip.encoders.preprocess import Preprocess
from prolip.export.checkpoint import Checkpoint
from prolip.io.environment import require

if TYPE_CHECKING:
    from torch import Tensor

# open_clip's name: transformers' name. {} is where "visual.transformer." and its like go.
_VISION = {
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.ln_pre.weight": "vision_model.pre_layrnorm.weight",
    "visual.ln_pre.bias": "vision_model.pre_layrnorm.bias",
    "visual.ln_post.weight": "vision_model.post_layernorm.weight",
    "visual.ln_post.bias": "vision_model.post_layernorm.bias",
}
_TEXT = {
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "ln_final.weight": "text_model.final_layer_norm.weight",
    "ln_final.bias": "text_model.final_layer_norm.bias",
    "logit_scale": "logit_scale",
}
_SAME = _VISION | _TEXT
_TRANSPOSED = {"visual.proj": "visual_projection.weight", "text_projection": "text_projection.weight"}
_LAYER = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "attn.out_proj": "self_attn.out_proj",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}
_TOWERS = {
    "visual.transformer.resblocks": "vision_model.encoder.layers",
    "transformer.resblocks": "text_model.encoder.layers",
}
_ACTIVATIONS = {"quick_gelu": True, "gelu": False}  # transformers' name: open_clip's quick_gelu


def convert(checkpoint: Checkpoint, library: str) -> Checkpoint:
    """Convert a model to a library, "hf" or "open_clip"; one of this library is returned as it is."""
    if checkpoint.library == library:
        return checkpoint
    return _to_hf(checkpoint) if library == "hf" else _to_open_clip(checkpoint)


def with_preprocess(checkpoint: Checkpoint, preprocess: Preprocess) -> Checkpoint:
    """Return a checkpoint that prepares images in this way."""
    if checkpoint.preprocess == preprocess:
        return checkpoint
    processor = _hf_image_processor if checkpoint.library == "hf" else _open_clip_image_processor
    return replace(checkpoint, preprocess=preprocess, image_processor=processor(preprocess))


def _to_hf(source: Checkpoint) -> Checkpoint:
    transformers = require("transformers", "hf")
    # A text tower may stand under "text." or not; its tensors are the same.
    state = {name.removeprefix("text."): tensor for name, tensor in source.state.items()}
    state.pop("attn_mask", None)
    vision, text = source.config["vision_cfg"], source.config["text_cfg"]
    _require_plain(source.config, state)
    activation = "quick_gelu" if source.config.get("quick_gelu") else "gelu"
    width, text_width = state["visual.conv1.weight"].shape[0], state["token_embedding.weight"].shape[1]
    vocabulary = state["token_embedding.weight"].shape[0]
    config = transformers.CLIPConfig(
        projection_dim=source.config["embed_dim"],
        vision_config={
            "hidden_size": width,
            "intermediate_size": _layer_width(state, "visual.transformer.resblocks"),
            "num_hidden_layers": _depth(state, "visual.transformer.resblocks"),
            "num_attention_heads": width // vision.get("head_width", 64),
            "image_size": source.preprocess.size,
            "patch_size": state["visual.conv1.weight"].shape[-1],
            "hidden_act": activation,
        },
        text_config={
            "vocab_size": vocabulary,
            "hidden_size": text_width,
            "intermediate_size": _layer_width(state, "transformer.resblocks"),
            "num_hidden_layers": _depth(state, "transformer.resblocks"),
            "num_attention_heads": text.get("heads", 8),
            "max_position_embeddings": state["positional_embedding"].shape[0],
            "hidden_act": activation,
            "bos_token_id": vocabulary - 2,
            "eos_token_id": vocabulary - 1,
            "pad_token_id": vocabulary - 1,
        },
    )
    converted: dict[str, Tensor] = {}
    for ours, theirs in _names(config.vision_config.num_hidden_layers, config.text_config.num_hidden_layers):
        if (tensor := state.pop(ours, None)) is None:
            raise ModelError(f"this model lacks {ours}, which transformers' CLIP needs")
        tensor = tensor.T if ours in _TRANSPOSED else tensor
        parts = tensor.chunk(len(theirs)) if len(theirs) > 1 else [tensor]
        converted |= {name: part.contiguous() for name, part in zip(theirs, parts, strict=True)}
    if state:
        raise ModelError(f"transformers' CLIP has no place for {min(state)} of this model")
    return replace(
        source,
        library="hf",
        config=config,
        state=converted,
        tokenizer=_hf_tokenizer(source.tokenizer, transformers),
        image_processor=_hf_image_processor(source.preprocess),
    )


def _to_open_clip(source: Checkpoint) -> Checkpoint:
    torch = require("torch", "open-clip")
    if source.config.model_type != "clip":
        raise ModelError(
            "open_clip has no counterpart of this model: its SigLIP computes another GELU; only CLIP converts"
        )
    vision, text = source.config.vision_config, source.config.text_config
    if vision.hidden_act != text.hidden_act or vision.hidden_act not in _ACTIVATIONS:
        raise ModelError(
            f"open_clip has no counterpart of activations {vision.hidden_act} and {text.hidden_act}"
        )
    if (vision.layer_norm_eps, text.layer_norm_eps) != (1e-5, 1e-5):
        raise ModelError(f"open_clip has no counterpart of layer_norm_eps {vision.layer_norm_eps}")
    text_cfg: dict[str, Any] = {
        "context_length": text.max_position_embeddings,
        "vocab_size": text.vocab_size,
        "width": text.hidden_size,
        "heads": text.num_attention_heads,
        "layers": text.num_hidden_layers,
        "mlp_ratio": text.intermediate_size / text.hidden_size,
    }
    if text.vocab_size != 49408:  # not CLIP's own vocabulary: the tokenizer is written, too
        text_cfg |= {"hf_tokenizer_name": "tokenizer.json of this folder"}
        text_cfg |= {"pool_type": "eos", "eos_id": text.eos_token_id}
    config = {
        "embed_dim": source.config.projection_dim,
        "quick_gelu": _ACTIVATIONS[vision.hidden_act],
        "vision_cfg": {
            "image_size": vision.image_size,
            "layers": vision.num_hidden_layers,
            "width": vision.hidden_size,
            "head_width": vision.hidden_size // vision.num_attention_heads,
            "mlp_ratio": vision.intermediate_size / vision.hidden_size,
            "patch_size": vision.patch_size,
        },
        "text_cfg": text_cfg,
    }
    converted = {}
    for ours, theirs in _names(vision.num_hidden_layers, text.num_hidden_layers):
        parts = [source.state[name] for name in theirs]
        tensor = torch.cat(parts) if len(parts) > 1 else parts[0]
        converted[ours] = tensor.T.contiguous() if ours in _TRANSPOSED else tensor
    image_processor = _open_clip_image_processor(source.preprocess)
    return replace(
        source, library="open_clip", config=config, state=converted, image_processor=image_processor
    )


def _names(image_layers: int, text_layers: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the name of each tensor in open_clip, and in transformers: three where they are stacked."""
    for ours, theirs in (_SAME | _TRANSPOSED).items():
        yield ours, (theirs,)
    for (ours, theirs), depth in zip(_TOWERS.items(), (image_layers, text_layers), strict=True):
        for layer, kind in itertools.product(range(depth), ("weight", "bias")):
            for module, other in _LAYER.items():
                yield f"{ours}.{layer}.{module}.{kind}", (f"{theirs}.{layer}.{other}.{kind}",)
            stacked = tuple(f"{theirs}.{layer}.self_attn.{letter}_proj.{kind}" for letter in "qkv")
            yield f"{ours}.{layer}.attn.in_proj_{kind}", stacked


def _depth(state: dict[str, Tensor], prefix: str) -> int:
    return len({name.removeprefix(f"{prefix}.").split(".")[0] for name in state if name.startswith(prefix)})


def _layer_width(state: dict[str, Tensor], prefix: str) -> int:
    return int(state[f"{prefix}.0.mlp.c_fc.weight"].shape[0])


def _require_plain(config: dict[str, Any], state: dict[str, Tensor]) -> None:
    """Reject models of open_clip that transformers' CLIP cannot compute."""
    vision, text = config["vision_cfg"], config["text_cfg"]
    if "timm_model_name" in vision:
        raise ModelError(
            f"transformers' CLIP has no counterpart of the image tower {vision['timm_model_name']}"
        )
    if isinstance(vision["layers"], (list, tuple)):
        raise ModelError("transformers has no CLIP with a ResNet: only ViTs convert")
    if "hf_model_name" in text:
        raise ModelError(f"transformers' CLIP has no counterpart of the text tower {text['hf_model_name']}")
    if "hf_tokenizer_name" in text:
        raise ModelError(
            f"the tokenizer {text['hf_tokenizer_name']} is not CLIP's: this model does not convert"
        )
    usual: dict[str, tuple[Any, ...]] = {
        "pool_type": ("tok", "argmax"),
        "no_ln_pre": (False,),
        "final_ln_after_pool": (False,),
        "attentional_pool": (False, None),
        "ls_init_value": (None,),
        "no_causal_mask": (False,),
        "embed_cls": (False,),
        "proj_bias": (False,),
        "proj_type": ("linear",),
        "act_kwargs": (None, {}),
        "norm_kwargs": (None, {}),
        "block_type": (None, "default"),
    }
    for part in (vision, text):
        for key, allowed in usual.items():
            if key in part and part[key] not in allowed:
                raise ModelError(f"transformers' CLIP has no counterpart of {key} = {part[key]!r}")
    missing = [name for name in (*_SAME, *_TRANSPOSED) if name not in state]
    if missing:
        raise ModelError(f"this model lacks {missing[0]}, which transformers' CLIP needs")


def _hf_tokenizer(tokenizer: Any, transformers: Any) -> Any:
    """Make CLIP's byte-pair tokenizer from open_clip's copy of its vocabulary."""
    words = dict(tokenizer.encoder)
    start, end = list(words)[-2:]
    vocabulary = {word: number for word, number in words.items() if word not in (start, end)}
    vocabulary |= {"<|startoftext|>": words[start], "<|endoftext|>": words[end]}
    merges = [tuple(pair) for pair in tokenizer.bpe_ranks]
    length = tokenizer.context_length
    return transformers.CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=length)


_RESAMPLE = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}  # PIL's numbers


def _hf_image_processor(preprocess: Preprocess) -> dict[str, Any]:
    if preprocess.resize == "longest":
        raise ModelError("transformers' CLIP has no counterpart of images that are padded to a square")
    square = {"height": preprocess.size, "width": preprocess.size}
    squash = preprocess.resize == "squash"
    return {
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": square if squash else {"shortest_edge": preprocess.resize_to or preprocess.size},
        "resample": _RESAMPLE[preprocess.interpolation],
        "do_center_crop": not squash,
        "crop_size": square,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(preprocess.mean),
        "image_std": list(preprocess.std),
    }


def _open_clip_image_processor(preprocess: Preprocess) -> dict[str, Any]:
    resized = preprocess.resize_to or preprocess.size
    if preprocess.resize == "shortest" and resized != preprocess.size:
        raise ModelError(
            f"open_clip has no counterpart of images that are resized to {resized} "
            f"and then cut to {preprocess.size}"
        )
    if preprocess.interpolation not in ("bilinear", "bicubic"):
        raise ModelError(f"open_clip has no counterpart of interpolation {preprocess.interpolation!r}")
    return {
        "mean": list(preprocess.mean),
        "std": list(preprocess.std),
        "interpolation": preprocess.interpolation,
        "resize_mode": preprocess.resize,
        "fill_color": preprocess.fill,
    }
