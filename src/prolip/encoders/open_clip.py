"""Models of open_clip: `open_clip:ARCH/TAG`, `open_clip:local-dir:PATH`.

ARCH may be written as OpenAI does, ViT-B/32. TAG may be a file of weights: safetensors, or a checkpoint that
holds tensors only; one that would run code, or a TorchScript archive, is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prolip.core.errors import ModelError, UnknownNameError, UsageError, first_line
from prolip.encoders.base import choose_device
from prolip.encoders.hub import (
    cached_revision,
    fetch_folder,
    loading,
    local_first,
    refuse_download,
    require_folder,
)
from prolip.encoders.preprocess import Preprocess
from prolip.io.environment import require
from prolip.io.reading import read_json

if TYPE_CHECKING:
    from prolip.encoders.split_tower_torch import SplitTower
    from prolip.encoders.tower_encoder_torch import TowerEncoder

_CONFIG = "open_clip_config.json"
_WEIGHTS = ("*.safetensors", "*.bin", "*.pth")
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
_SAID_BY_TAGS = ("mean", "std", "interpolation", "resize_mode")
_HUB_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")


@dataclass(frozen=True)
class _Source:
    """Where a model comes from, in open_clip's own terms."""

    model: str
    config: dict[str, Any]
    weights: str | None = None
    local: bool = False  # the user names a folder or a file
    repository: str = ""  # of the hub, with one of these files
    files: tuple[str, ...] = ()
    preprocess: Mapping[str, Any] = field(default_factory=dict)  # what a tag says that its file does not


def load(rest: str, device: str) -> TowerEncoder:
    """Load a model by the part of its name after `open_clip:`."""
    if not rest:
        raise UsageError("open_clip: needs a model: write open_clip:ARCH/TAG, as in open_clip:RN50/openai")
    _, open_clip, _ = (require(name, "open-clip") for name in ("torch", "open_clip", "huggingface_hub"))
    device = choose_device(device)
    source = _source(rest, open_clip)
    name = f"open_clip:{rest}"
    if rest.startswith("local-dir:"):  # a saved model finds its base from any folder
        name = f"open_clip:{source.model}"
    elif source.local:
        name = f"open_clip:{source.model}/{source.weights}"
    if "multimodal_cfg" in source.config:
        raise UsageError(f"{name} is a CoCa model, which is not supported: choose a CLIP or SigLIP model")
    if "timm_model_name" in source.config["vision_cfg"]:
        require("timm", "open-clip")
    if any(source.config["text_cfg"].get(key) for key in ("hf_model_name", "hf_tokenizer_name")):
        require("transformers", "hf")

    from prolip.encoders.open_clip_torch import open_towers, split_image, split_text
    from prolip.encoders.tower_encoder_torch import Anatomy, TowerEncoder, fingerprint, noise

    text = source.config["text_cfg"]
    text_from_hub = text.get("hf_model_name") and not Path(text["hf_model_name"]).is_dir()
    if text_from_hub or not (source.local or source.repository):
        refuse_download(name)  # open_clip asks for the configuration of the tower, or for its own address
    with loading(name, source.local):
        model = open_clip.create_model_from_pretrained(
            source.model,
            _download(source) if source.repository else source.weights,
            device=device,
            force_quick_gelu=source.config.get("quick_gelu", False),
            return_transform=False,
            **source.preprocess,
        )
        tokenizer = local_first(
            lambda local: open_clip.get_tokenizer(
                source.model, **({"local_files_only": local} if text.get("hf_tokenizer_name") else {})
            )
        )
    model.float().eval().requires_grad_(False)
    preprocess = Preprocess.from_open_clip(model.visual.preprocess_cfg, name)
    probes = noise(preprocess, device), tokenizer(["a photo of a cat."]).to(device)

    def split(model: Any) -> tuple[SplitTower, SplitTower]:
        return split_image(model, probes[0]), split_text(model, probes[1])

    revision = source.repository and cached_revision(source.repository, _CONFIG, *_HUB_WEIGHTS)
    keys = ("mean", "std", "interpolation", "resize_mode")
    processor = {key: model.visual.preprocess_cfg[key] for key in keys}
    anatomy = Anatomy("open_clip", split, open_towers, tokenizer, source.config, tokenizer, processor)
    digest = fingerprint(model, {**source.config, "preprocess": preprocess.config()})
    return TowerEncoder(name, model, anatomy, preprocess, device, digest, revision)


def _source(rest: str, open_clip: Any) -> _Source:
    scheme, colon, identifier = rest.partition(":")
    if colon and scheme == "local-dir":
        return _folder(Path(identifier).expanduser().resolve())
    arch, tag = _arch_and_tag(rest, open_clip)
    config, published = open_clip.get_model_config(arch), open_clip.get_pretrained_cfg(arch, tag)
    # A tag has the activation that its weights were trained with; open_clip itself would only warn.
    config["quick_gelu"] = config.get("quick_gelu", False) or published.get("quick_gelu", False)
    if not published:
        return _Source(arch, config, str(Path(tag).expanduser().resolve()), local=True)
    repository, _, file = published.get("hf_hub", "").rpartition("/")
    preprocess = {f"image_{key}": published[key] for key in _SAID_BY_TAGS if key in published}
    return _Source(arch, config, tag, False, repository, (file,) if file else _HUB_WEIGHTS, preprocess)


def _download(source: _Source) -> str | None:
    """Return the weights of a tag in the hub's cache, where open_clip finds them without a request."""
    *others, last = source.files
    for file in others:
        with suppress(ModelError):
            return str(fetch_folder(source.repository, {"weights": (file,)}, [file]) / file)
    return str(fetch_folder(source.repository, {"weights": (last,)}, [last]) / last)


def _arch_and_tag(rest: str, open_clip: Any) -> tuple[str, str]:
    """Split ARCH/TAG where the part before a slash is an architecture; both may contain slashes."""
    known = open_clip.list_models()
    parts = rest.split("/")
    for count in range(1, len(parts) + 1):
        arch, tag = "-".join(parts[:count]), "/".join(parts[count:])
        if arch in known:
            break
    else:
        raise UnknownNameError("open_clip architecture", parts[0], known)
    tags = open_clip.list_pretrained_tags_by_model(arch)
    if not tag:
        advice = f"a tag (like {', '.join(tags[:5])}) or a file" if tags else "a file (no tag is published)"
        raise UsageError(f"open_clip:{rest} needs weights: write open_clip:{arch}/ and {advice}")
    if not open_clip.get_pretrained_cfg(arch, tag) and not Path(tag).expanduser().is_file():
        if "/" in tag or Path(tag).suffix or not tags:
            raise ModelError(f"there is no file of weights {tag}")
        raise UnknownNameError(f"tag of {arch}", tag, tags)
    return arch, tag


def _folder(folder: Path) -> _Source:
    require_folder(folder, {"a configuration": (_CONFIG,), "weights": _WEIGHTS})
    try:
        config = read_json(folder / _CONFIG)["model_cfg"]
        text = config["text_cfg"]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{folder / _CONFIG} is not a model of open_clip: {first_line(error)}") from error
    if text.get("hf_tokenizer_name"):
        require_folder(folder, {"its tokenizer": _TOKENIZER})
    return _Source(f"local-dir:{folder}", config, local=True)
