"""Models of open_clip: `open_clip:ARCH/TAG`, `open_clip:local-dir:PATH`, `open_clip:hf-hub:ID`.

ARCH may be written as OpenAI does, ViT-B/32. TAG may be a file of weights: safetensors, or a checkpoint that
holds tensors only; one that needs code to be unpickled, or a TorchScript archive, is refused.

Three kinds of image tower:

    CLIP ViT       v = pooled @ proj             a bare matrix [width, D]
    CLIP ResNet    v = c_proj(attention pool)    with bias, inside one torch function
    timm           v = projection, MLP, or SigLIP's r + fc2(h): whatever tower.py finds
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from prolip.core.errors import ModelError, UsageError, unknown_name
from prolip.core.head import Head
from prolip.encoders.hub import cached_revision, first_line, loading, require, require_folder
from prolip.encoders.open_clip_towers import open_towers
from prolip.encoders.preprocess import Preprocess
from prolip.encoders.tower import (
    Anatomy,
    Place,
    Run,
    Split,
    TowerEncoder,
    checked,
    noise,
    plain,
    split_at_linear,
    split_at_matrix,
    swapped,
)

_CONFIG = "open_clip_config.json"
_WEIGHTS = ("*.safetensors", "*.bin", "*.pth")
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True)
class _Source:
    """Where a model comes from, in open_clip's own terms."""

    model: str
    config: dict[str, Any]
    weights: str | None = None
    local: bool = False  # nothing has to come from a hub
    repository: str | None = None


def load(rest: str, device: torch.device) -> TowerEncoder:
    """The encoder of this name, the part after `open_clip:`."""
    if not rest:
        raise UsageError("open_clip: names no model: write open_clip:ARCH/TAG, as in open_clip:RN50/openai")
    open_clip = require("open_clip", "open_clip")
    name = f"open_clip:{rest}"
    source = _source(rest, open_clip)
    if "multimodal_cfg" in source.config:
        raise UsageError(f"{name} is a CoCa model, which is not supported: choose a CLIP or SigLIP model")
    with loading(name, source.local):
        model = open_clip.create_model_from_pretrained(
            source.model,
            source.weights,
            device=device,
            force_quick_gelu=source.config.get("quick_gelu", False),
            return_transform=False,
        )
        tokenizer = open_clip.get_tokenizer(source.model)
    model.float().eval().requires_grad_(False)
    preprocess = _preprocess(model.visual.preprocess_cfg, name)
    probes = noise(preprocess, device), tokenizer(["a photo of a cat."]).to(device)

    def split(model: Any) -> tuple[Split, Split]:
        return _split_image(model, probes[0]), _split_text(model, probes[1])

    with torch.no_grad():
        image, text = split(model)
    revision = source.repository and cached_revision(
        source.repository, _CONFIG, "open_clip_model.safetensors", "open_clip_pytorch_model.bin"
    )
    beside = {"config": source.config, "tokenizer": tokenizer}
    anatomy = Anatomy(split, open_towers)
    return TowerEncoder(
        name, model, image, text, tokenizer, preprocess, device, source.config, beside, anatomy, revision
    )


def _source(rest: str, open_clip: Any) -> _Source:
    scheme, colon, identifier = rest.partition(":")
    if colon and scheme == "local-dir":
        return _folder(Path(identifier).expanduser())
    if colon and scheme == "hf-hub":
        with loading(f"open_clip:{rest}", local=False):
            config = open_clip.get_model_config(rest)
        return _Source(rest, config, repository=identifier)
    arch, tag = _arch_and_tag(rest, open_clip)
    config, published = open_clip.get_model_config(arch), open_clip.get_pretrained_cfg(arch, tag)
    # A tag knows which activation its weights were trained with; open_clip itself would only warn.
    config["quick_gelu"] = config.get("quick_gelu", False) or published.get("quick_gelu", False)
    weights = tag if published else str(Path(tag).expanduser())
    repository = published.get("hf_hub", "").rpartition("/")[0] or None
    return _Source(arch, config, weights, not published and not _text_from_hub(config), repository)


def _arch_and_tag(rest: str, open_clip: Any) -> tuple[str, str]:
    """Split ARCH/TAG where the part before a slash is an architecture, for either may hold slashes."""
    known = open_clip.list_models()
    parts = rest.split("/")
    for count in range(1, len(parts) + 1):
        arch, tag = "-".join(parts[:count]), "/".join(parts[count:])
        if arch in known:
            break
    else:
        raise unknown_name("open_clip architecture", parts[0], known)
    tags = open_clip.list_pretrained_tags_by_model(arch)
    if not tag:
        wanted = f"a tag (like {', '.join(tags[:5])}) or a file" if tags else "a file (no tag is published)"
        raise UsageError(f"open_clip:{rest} names no weights: write open_clip:{arch}/ and {wanted}")
    if not open_clip.get_pretrained_cfg(arch, tag) and not Path(tag).expanduser().is_file():
        if "/" in tag or Path(tag).suffix or not tags:
            raise ModelError(f"there is no file of weights {tag}")
        raise unknown_name(f"tag of {arch}", tag, tags)
    return arch, tag


def _folder(folder: Path) -> _Source:
    require_folder(folder, {"a configuration": (_CONFIG,), "weights": _WEIGHTS})
    try:
        config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))["model_cfg"]
        text = config["text_cfg"]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{folder / _CONFIG} is not a model of open_clip: {first_line(error)}") from error
    if text.get("hf_tokenizer_name"):
        require_folder(folder, {"its tokenizer": _TOKENIZER})
    return _Source(f"local-dir:{folder}", config, local=not _text_from_hub(config))


def _text_from_hub(config: dict[str, Any]) -> bool:
    """Whether the text tower is one of transformers, whose configuration open_clip takes from the hub."""
    named = config["text_cfg"].get("hf_model_name")
    return bool(named) and not Path(named).is_dir()


def _preprocess(config: dict[str, Any], name: str) -> Preprocess:
    height, width = (config["size"],) * 2 if isinstance(config["size"], int) else config["size"]
    if height != width:
        raise ModelError(f"{name} takes pictures of {height} x {width}; only squares are supported")
    return Preprocess(
        size=height,
        mean=_triple(config["mean"]),
        std=_triple(config["std"]),
        interpolation="bilinear" if config["interpolation"] == "bilinear" else "bicubic",
        resize=config["resize_mode"],
        fill=config["fill_color"],
    )


def _triple(values: Sequence[float] | float) -> tuple[float, float, float]:
    red, green, blue = (values,) * 3 if isinstance(values, (int, float)) else values
    return float(red), float(green), float(blue)


def _split_image(model: Any, probe: Tensor) -> Split:
    visual, run = model.visual, model.encode_image
    if isinstance(getattr(visual, "proj", None), nn.Parameter):
        return split_at_matrix(visual, "proj", run, probe)
    if isinstance(getattr(getattr(visual, "attnpool", None), "c_proj", None), nn.Linear):
        return _split_resnet(visual, run, probe)
    return split_at_linear(visual, run, probe)


def _split_text(model: Any, probe: Tensor) -> Split:
    tower = getattr(model, "text", model)
    if isinstance(getattr(tower, "text_projection", None), nn.Parameter):
        return split_at_matrix(tower, "text_projection", model.encode_text, probe)
    return split_at_linear(tower, model.encode_text, probe)


def _split_resnet(visual: Any, run: Run, probe: Tensor) -> Split:
    pool = _MeanQueryPool(visual.attnpool)

    def features(x: Tensor) -> Tensor:
        with swapped(visual, "attnpool", pool):
            return run(x)

    project = visual.attnpool.c_proj
    place = Place(project.weight, project.bias, transposed=True)
    split = Split(features, Head(plain(project.weight.T), plain(project.bias)), place)
    return checked(split, run, features(probe), run(probe))


class _MeanQueryPool(nn.Module):
    """CLIP's attention pooling, up to its last projection.

    Every position would ask, and all but the mean's answer be thrown away; here only the mean asks.
    """

    def __init__(self, pool: Any) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        """Features [B, C] of a map [B, C, H, W]."""
        pool: Any = self.pool
        tokens = x.flatten(2).transpose(1, 2)  # [B, HW, C]
        tokens = torch.cat([tokens.mean(dim=1, keepdim=True), tokens], dim=1) + pool.positional_embedding

        def heads(t: Tensor) -> Tensor:
            return t.unflatten(2, (pool.num_heads, -1)).transpose(1, 2)  # [B, heads, positions, C / heads]

        query, key, value = pool.q_proj(tokens[:, :1]), pool.k_proj(tokens), pool.v_proj(tokens)
        pooled = nn.functional.scaled_dot_product_attention(heads(query), heads(key), heads(value))
        return pooled.transpose(1, 2).flatten(1)
