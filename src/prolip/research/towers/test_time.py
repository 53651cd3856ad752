"""Test-time adaptation: one step for each image, on views of itself, without a label.

Of 64 views (the centre, and 63 random crops of 0.08 to 1 of the image, flipped half the time) select the
tenth with the lowest entropy, S; the step lowers the entropy of their mean prediction (the paper's
equations for TPT, and its test-time ProLIP):

    H(q) = - sum_k q_k log q_k,      q = mean of p_s over s in S,      p_s = softmax(s * z_s T')

TPT (Shu et al., 2022) takes the step on the words of the prompt: back through the text tower, for every
image. ProLIP takes it on the projection W, and that step has a closed form. With z = v / |v|, v = x W + b:

    dH/dl_s = p_s * (g - <p_s, g>) / |S|,        g = -(1 + log q)
    dH/dv_s = (I - z_s z_s') (scale * dH/dl_s T) / |v_s|
    G       = sum_s x_s' dH/dv_s                 [Do, D], of rank |S|

AdamW's first step from a fresh state moves each entry by lr * G / (|G| + eps), after a decay of W by
1 - lr * decay:

    W_new = (1 - lr * decay) W - lr * G / (|G| + eps)

and the centre view is predicted with the new W. The views go through the image tower once, before the step,
and everything is reset for the next image. The authors' program runs the whole tower again for the step, in
half precision. TPT's own program adds AugMix on fine-grained datasets; the paper's test-time runs, on
ImageNet and its variants, have none, nor has this.

The step moves the centre view towards the predictions of the selected views. It helps where those are right
more often than the centre view is, and harms elsewhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import entr

from prolip.core import Fitted, Head, InputError, Projected
from prolip.core.arrays import Array, as_features, row_lengths, softmax, to_numpy, to_torch, unit_rows
from prolip.encoders import Encoder
from prolip.features import extract
from prolip.solvers.threads import single_thread

if TYPE_CHECKING:
    from torch import Tensor

    from prolip.research.towers.prompt_tuning import Prompts

_PROMPTS_AT_ONCE = 128
_IMAGES_AT_ONCE = 32


@dataclass(frozen=True)
class TestTime(ABC):
    """Options of both methods.

    Parameters
    ----------
    lr, weight_decay, eps
        Options of the one step of AdamW.
    views
        Number of views of each image, the centre included.
    rho
        Share of the views that is selected, at least one.
    """

    __test__: ClassVar[bool] = False  # pytest must not collect it

    lr: float = 1e-4
    views: int = 64
    rho: float = 0.1
    weight_decay: float = 0.01
    eps: float = 1e-8

    def select(self, logits: Array) -> Array:
        """Return indices [.., S] of the views with the lowest entropy, of logits [.., V, K]."""
        selected = max(1, int(self.views * self.rho))
        return entropy(softmax(logits)).argsort(axis=-1, kind="stable")[..., :selected]

    @abstractmethod
    def logits(self, x: Any, start: Fitted, encoder: Encoder | None = None) -> Array:
        """Compute scores [n, K] of images, each after its own step.

        x are features of views [V, n, width], the centre first; `start` is a fitted model to step from,
        zero-shot or ProLIP's; the text tower of `encoder` reads the prompts, where these are adapted.
        """


@dataclass(frozen=True)
class TestTimeProLIP(TestTime):
    """Adapt the projection to each image, in closed form."""

    def logits(self, x: Any, start: Fitted, encoder: Encoder | None = None) -> Array:
        """Compute scores [n, K], one image after the other."""
        model = _projected(start)
        x = as_features(x, "features")
        head = model.head.with_weight(model.head.weight.astype(x.dtype))
        rows = model.text.rows.astype(x.dtype)
        with single_thread():  # one image is too little work for several threads
            return np.stack([self._step(x[:, i], head, rows, model.scale) for i in range(x.shape[1])])

    def _step(self, x: Array, head: Head, rows: Array, scale: float) -> Array:
        """Compute scores [K] of an image with views x [V, width]."""
        v = head(x)
        chosen = self.select(scale * unit_rows(v) @ rows.T)
        move = head.split(x[chosen])[0].T @ entropy_gradient(v[chosen], rows, scale)  # G [Do, D]
        size = np.abs(move)
        size += self.eps
        move /= size
        weight = (1 - self.lr * self.weight_decay) * head.weight
        weight -= self.lr * move
        return scale * unit_rows(head.with_weight(weight)(x[0])) @ rows.T


@dataclass(frozen=True)
class TPT(TestTime):
    """Adapt the words of the prompt to each image, through the text tower.

    Parameters
    ----------
    init
        The words to start from; the class name follows them. A model with learned words starts from those.
    """

    lr: float = 5e-3
    init: str = "a photo of a"

    def logits(self, x: Any, start: Fitted, encoder: Encoder | None = None) -> Array:
        """Compute scores [n, K], a few images at a time."""
        model, names = _projected(start), start.text.classes
        if encoder is None or names is None:
            raise InputError("tpt reads prompts by the text tower: it needs the encoder and the class names")
        towers = encoder.towers()

        from prolip.research.towers.prompt_tuning import Layout, phrase_embedding

        context = getattr(start, "context", None)
        if context is not None:  # TPT + CoOp
            words, layout = to_torch(context, encoder.device), start.layout  # type: ignore[attr-defined]
        else:
            words = phrase_embedding(encoder, towers, self.init, names[0])
            layout = Layout(len(words))
        prompts = layout.prompts(encoder, names)
        z = unit_rows(model.head(as_features(x, "features"))).swapaxes(0, 1)  # [n, V, D]
        chosen = self.select(model.scale * z @ to_numpy(prompts.embed(words)).T)[..., None]
        selected = np.take_along_axis(z, chosen, axis=1)
        size = max(1, _PROMPTS_AT_ONCE // len(names))
        parts = []
        for first in range(0, len(z), size):
            some = slice(first, first + size)
            centre, others = (to_torch(part, encoder.device) for part in (z[some, 0], selected[some]))
            parts.append(to_numpy(self._step(centre, others, prompts, words, model.scale)))
        return np.concatenate(parts)

    def _step(
        self, centre: Tensor, selected: Tensor, prompts: Prompts, words: Tensor, scale: float
    ) -> Tensor:
        """Compute scores [c, K] of centre views [c, D] after a step on the selected [c, n_selected, D]."""
        import torch

        context = torch.nn.Parameter(
            words.repeat(len(selected), 1, 1, 1)
        )  # [c, 1, M, De]: one for each image
        optimizer = torch.optim.AdamW([context], lr=self.lr, weight_decay=self.weight_decay, eps=self.eps)
        mean = (scale * selected @ prompts.embed(context).mT).softmax(dim=-1).mean(dim=1)
        certain = mean.clamp_min(torch.finfo(mean.dtype).tiny).log()  # finite where a probability is zero
        (-(mean * certain).sum()).backward()
        optimizer.step()
        with torch.no_grad():
            return scale * (prompts.embed(context) @ centre[:, :, None])[..., 0]


def entropy(p: Array) -> Array:
    """Compute the entropy of probabilities along the last axis."""
    sums: Array = entr(p).sum(axis=-1)
    return sums


def entropy_gradient(v: Array, rows: Array, scale: float) -> Array:
    """Compute the gradient [m, D] by embeddings v [m, D] of the entropy of their mean prediction."""
    length = np.maximum(row_lengths(v), 1e-12)
    z = v / length
    p = softmax(scale * z @ rows.T)  # [m, K]
    g = -np.log(np.maximum(p.mean(axis=0), np.finfo(p.dtype).tiny))  # a constant cancels below
    by_logits = p * (g - (p * g).sum(axis=-1, keepdims=True)) / len(v)
    by_z = scale * by_logits @ rows
    gradient: Array = (by_z - z * (z * by_z).sum(axis=-1, keepdims=True)) / length
    return gradient


def _projected(start: Fitted) -> Projected:
    """Return the head, text rows and scale of a model."""
    model = start.as_projected()
    if model is None:
        raise InputError(
            f"test-time adaptation starts from a projection and text rows alone, not from {start.method}: "
            "start from zero-shot or ProLIP"
        )
    return model


def adapt_images(encoder: Encoder, start: Fitted, images: Sequence[Any], method: TestTime) -> Array:
    """Adapt a model to each image and return its scores [n, K].

    The views are not stored on disk: 64 rows for each image would soon fill it.
    """
    scores = []
    for first in range(0, len(images), _IMAGES_AT_ONCE):
        reader, x = encode_views(encoder, start, images[first : first + _IMAGES_AT_ONCE], method)
        scores.append(method.logits(x, start, reader))
    return np.concatenate(scores)


def encode_views(
    encoder: Encoder, start: Fitted, images: Sequence[Any], method: TestTime
) -> tuple[Encoder, Array]:
    """Return features [V, n, width] of the views of images, and the encoder that made them."""
    reader = start.encoder_for(encoder)
    crops = replace(reader.preprocess, view_area=0.08, view_interpolation="bilinear")
    reader = reader.with_preprocess(crops)
    return reader, extract(reader, images, range(method.views), None).features
