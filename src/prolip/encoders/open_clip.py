"""Models of open_clip: `open_clip:ARCH/TAG`, `open_clip:local-dir:PATH`.

ARCH may be written as OpenAI does, ViT-B/32. Weights are safetensors, or a checkpoint that holds tensors
only; one that would run code is rejected.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from prolip.core.errors import ModelError, UnknownNameError, UsageError, check_name, first_line
from prolip.encoders.base import choose_torch_device
from prolip.encoders.hub import cached_revision, loading, local_first, refuse_download, require_folder
from prolip.encoders.preprocess import Preprocess
from prolip.io.environment import require
from prolip.io.reading import read_json

if TYPE_CHECKING:
    from prolip.encoders.split_tower_torch import SplitTower
    from prolip.encoders.tower_encoder_torch import TowerEncoder

_CONFIG = "open_clip_config.json"
_WEIGHTS = ("*.safetensors", "*.bin", "*.pth")
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
_PREPROCESSING = ("mean", "std", "interpolation", "resize_mode")
_HUB_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")


def load(rest: str, device: str) -> TowerEncoder:
    """Load a model by the part of its name after `open_clip:`."""
    open_clip = require("open_clip", "open-clip")
    device = choose_torch_device(device)
    local = rest.startswith("local-dir:")
    if local:
        folder = Path(rest.removeprefix("local-dir:")).expanduser().resolve()
        source, tag, config = f"local-dir:{folder}", None, _read_config(folder)
        published: dict[str, Any] = {}
        name = f"open_clip:{source}"  # a saved model finds its base from any folder
    else:
        source, tag, published, config = _published(rest, open_clip)
        name = f"open_clip:{rest}"
    if "multimodal_cfg" in config:
        raise UsageError(f"{name} is a CoCa model, which is not supported: choose a CLIP or SigLIP model")
    text = config["text_cfg"]
    if text.get("hf_model_name") or text.get("hf_tokenizer_name"):
        require("transformers", "hf")

    from prolip.encoders.open_clip_torch import open_towers, split_image, split_text
    from prolip.encoders.tower_encoder_torch import Anatomy, TowerEncoder, fingerprint, noise

    repository, _, file = published.get("hf_hub", "").rpartition("/")
    files = (file,) if file else _HUB_WEIGHTS
    text_from_hub = text.get("hf_model_name") and not Path(text["hf_model_name"]).is_dir()
    if text_from_hub or not (local or repository):
        refuse_download(name)  # open_clip asks for the configuration of the tower, or for its own address
    with loading(name, local):
        model = open_clip.create_model_from_pretrained(
            source,
            _find_weights(repository, files) if repository else tag,
            device=device,
            force_quick_gelu=config.get("quick_gelu", False),
            return_transform=False,
            # What a tag says that its file does not.
            **{f"image_{key}": published[key] for key in _PREPROCESSING if key in published},
        )
        tokenizer = local_first(
            lambda local: open_clip.get_tokenizer(
                source, **({"local_files_only": local} if text.get("hf_tokenizer_name") else {})
            )
        )
    model.float().eval().requires_grad_(False)
    preprocess = Preprocess.from_open_clip(model.visual.preprocess_cfg, name)
    probes = noise(preprocess, device), tokenizer(["a photo of a cat."]).to(device)

    def split(model: Any) -> tuple[SplitTower, SplitTower]:
        return split_image(model, probes[0]), split_text(model, probes[1])

    revision = repository and cached_revision(repository, *files)
    processor = {key: model.visual.preprocess_cfg[key] for key in _PREPROCESSING}
    anatomy = Anatomy("open_clip", split, open_towers, tokenizer, config, tokenizer, processor)
    digest = fingerprint(model, {**config, "preprocess": preprocess.config()})
    return TowerEncoder(name, model, anatomy, preprocess, device, digest, revision)


def _published(rest: str, open_clip: Any) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    """Return architecture, tag, what open_clip says about the tag, and the configuration of ARCH/TAG."""
    arch, _, tag = rest.rpartition("/")
    arch = arch.replace("/", "-")
    if not arch:
        raise UsageError(
            f"open_clip:{rest} needs a tag: write open_clip:ARCH/TAG, as in open_clip:RN50/openai"
        )
    check_name("open_clip architecture", arch, open_clip.list_models())
    published = open_clip.get_pretrained_cfg(arch, tag)
    if not published:
        raise UnknownNameError(f"tag of {arch}", tag, open_clip.list_pretrained_tags_by_model(arch))
    config = open_clip.get_model_config(arch)
    # A tag has the activation that its weights were trained with; open_clip itself would only warn.
    config["quick_gelu"] = config.get("quick_gelu", False) or published.get("quick_gelu", False)
    return arch, tag, published, config


def _read_config(folder: Path) -> dict[str, Any]:
    """Return the configuration of a model in a folder, which has all that is needed."""
    require_folder(folder, {"a configuration": (_CONFIG,), "weights": _WEIGHTS})
    try:
        config: dict[str, Any] = read_json(folder / _CONFIG)["model_cfg"]
        text = config["text_cfg"]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{folder / _CONFIG} is not a model of open_clip: {first_line(error)}") from error
    if text.get("hf_tokenizer_name"):
        require_folder(folder, {"its tokenizer": _TOKENIZER})
    return config


def _find_weights(repository: str, files: tuple[str, ...]) -> str:
    """Return the path of the weights in the hub's cache: the first of these files that the repository has."""
    from huggingface_hub import HfApi, hf_hub_download, try_to_load_from_cache

    for file in files:
        if isinstance(path := try_to_load_from_cache(repository, file), str):
            return path
    refuse_download(repository)
    has = HfApi().file_exists
    file = next((file for file in files if has(repository, file)), files[-1])
    return str(hf_hub_download(repository, file))
