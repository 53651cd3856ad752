"""Adapted models of features, without images."""

from prolip import AdaptedModel, Recipe
from prolip.api.fit import fit_support
from prolip.api.model import Support
from prolip.core import Head, Task
from prolip.encoders import Encoder


class Identity(Encoder):
    """An encoder whose features are embeddings of `width` numbers, all of them computed before."""

    name, fingerprint, device = "identity", "identity", "cpu"

    def __init__(self, width, scale):
        self.head = self.text_head = Head.identity(width)
        self.scale = scale

    def encode(self, pixels):
        raise NotImplementedError

    def encode_text(self, prompts):
        raise NotImplementedError


def fit_features(x, y, text, method="anchored", classes=None, scale=100.0, **options) -> AdaptedModel:
    """Fit a method on features x [n, D], labels y [n] and class rows text [K, D]."""
    task = Task(x, y, text, scale=scale)
    support = Support(tuple(bytes([i % 256, i // 256]) * 16 for i in range(task.n)), task)
    names = classes or [f"class {k}" for k in range(task.classes)]
    settings = {name: options.pop(name) for name in ("calibrate", "seed") if name in options}
    return fit_support(
        Identity(task.x.shape[-1], scale), Recipe(method, options=options, **settings), names, support
    )
