"""Test-time adaptation: one step for each image, on views of itself, without a label.

Of 64 views (the centre, and 63 random crops of 0.08 to 1 of the picture, flipped half the time) keep the
tenth on which the model is surest, S; the step lowers the entropy of their mean prediction (the paper's
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

The step moves the centre view towards what the surest views say. It helps where those are right more often
than the centre view is, and harms where they are not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import entr

from prolip.core import Fitted, Head, InputError, Projected, UsageError
from prolip.core.arrays import Array, as_features, row_lengths, softmax, to_numpy, to_torch, unit_rows
from prolip.core.errors import check_name
from prolip.encoders import Encoder
from prolip.encoders.preprocess import Preprocess
from prolip.solvers.threads import single_thread

if TYPE_CHECKING:
    from torch import Tensor

    from prolip.research.towers.prompts import Prompts

_PROMPTS_AT_ONCE = 128


@dataclass(frozen=True)
class TestTime(ABC):
    """What both ways share.

    Parameters
    ----------
    lr
        Of the one step of AdamW.
    views
        Of each image, the centre included.
    rho
        The share of views that is kept, at least one.
    weight_decay, eps
        Of AdamW.
    """

    __test__: ClassVar[bool] = False  # not one of pytest's, whatever its name

    lr: float = 1e-4
    views: int = 64
    rho: float = 0.1
    weight_decay: float = 0.01
    eps: float = 1e-8

    def __post_init__(self) -> None:
        if self.views < 1 or not 0 < self.rho <= 1:
            raise UsageError(
                f"views must be 1 or more and rho between 0 and 1, got {self.views} and {self.rho}"
            )

    @property
    def kept(self) -> int:
        """How many views the step is taken on."""
        return max(1, int(self.views * self.rho))

    def surest(self, logits: Array) -> Array:
        """Places [.., kept] of the views with the lowest entropy, of logits [.., V, K]."""
        return entropy(softmax(logits)).argsort(axis=-1, kind="stable")[..., : self.kept]

    @abstractmethod
    def logits(self, x: Any, start: Fitted, encoder: Encoder | None = None) -> Array:
        """Scores [n, K] of images, each after its own step.

        x are features of views [V, n, width], the centre first; `start` is a fitted model to step from,
        zero-shot or ProLIP's; the text tower of `encoder` reads the prompts, where they are what is adapted.
        """


@dataclass(frozen=True)
class TestTimeProLIP(TestTime):
    """Adapt the projection to each image, in closed form."""

    def logits(self, x: Any, start: Fitted, encoder: Encoder | None = None) -> Array:
        """Scores [n, K], one image after the other."""
        model = _projected(start)
        x = _views(x, self.views)
        head = model.head.with_weight(model.head.weight.astype(x.dtype))
        rows = model.text.rows.astype(x.dtype)
        with single_thread():  # an image is too small a piece of work to share
            return np.stack([self._step(x[:, i], head, rows, model.scale) for i in range(x.shape[1])])

    def _step(self, x: Array, head: Head, rows: Array, scale: float) -> Array:
        """Scores [K] of an image with views x [V, width]."""
        v = head(x)
        chosen = self.surest(scale * unit_rows(v) @ rows.T)
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
        The words to start from; each class name follows them.
    """

    lr: float = 5e-3
    init: str = "a photo of a"

    def logits(self, x: Any, start: Fitted, encoder: Encoder | None = None) -> Array:
        """Scores [n, K], a few images at a time."""
        model, names = _projected(start), start.text.classes
        if encoder is None or names is None:
            raise InputError("tpt reads prompts by the text tower: it needs the encoder and the class names")
        towers = encoder.towers()

        from prolip.research.towers.prompts import Prompts, phrase_embedding

        words = phrase_embedding(encoder, towers, self.init, names[0])
        prompts = Prompts.build(encoder, towers, names, len(words), "end")
        z = unit_rows(model.head(_views(x, self.views))).swapaxes(0, 1)  # [n, V, D]
        chosen = self.surest(model.scale * z @ to_numpy(prompts.embed(words)).T)[..., None]
        sure = np.take_along_axis(z, chosen, axis=1)
        size = max(1, _PROMPTS_AT_ONCE // len(names))
        parts = []
        for first in range(0, len(z), size):
            some = slice(first, first + size)
            centre, others = (to_torch(part, encoder.device) for part in (z[some, 0], sure[some]))
            parts.append(to_numpy(self._step(centre, others, prompts, words, model.scale)))
        return np.concatenate(parts)

    def _step(self, centre: Tensor, sure: Tensor, prompts: Prompts, words: Tensor, scale: float) -> Tensor:
        """Scores [c, K] of centre views [c, D], unit embeddings, after a step on the surest [c, kept, D]."""
        import torch

        context = torch.nn.Parameter(words.repeat(len(sure), 1, 1, 1))  # [c, 1, M, De]: each image's own
        optimizer = torch.optim.AdamW([context], lr=self.lr, weight_decay=self.weight_decay, eps=self.eps)
        mean = (scale * sure @ prompts.embed(context).mT).softmax(dim=-1).mean(dim=1)
        certain = mean.clamp_min(torch.finfo(mean.dtype).tiny).log()  # finite where a probability is zero
        (-(mean * certain).sum()).backward()
        optimizer.step()
        with torch.no_grad():
            return scale * (prompts.embed(context) @ centre[:, :, None])[..., 0]


WAYS: dict[str, type[TestTime]] = {"prolip": TestTimeProLIP, "tpt": TPT}


def create(way: str, **options: Any) -> TestTime:
    """Test-time adaptation by name: "prolip" or "tpt"."""
    check_name("test-time adaptation", way, WAYS)
    return WAYS[way](**options)


def view_preprocess(preprocess: Preprocess) -> Preprocess:
    """How the views are made: crops from 0.08 of the area on, resized with bilinear interpolation."""
    return replace(preprocess, view_area=0.08, view_interpolation="bilinear")


def entropy(p: Array) -> Array:
    """Of probabilities along the last axis."""
    return entr(p).sum(axis=-1)


def entropy_gradient(v: Array, rows: Array, scale: float) -> Array:
    """The gradient [m, D] by embeddings v [m, D] of the entropy of their mean prediction."""
    length = np.maximum(row_lengths(v), 1e-12)
    z = v / length
    p = softmax(scale * z @ rows.T)  # [m, K]
    g = -np.log(np.maximum(p.mean(axis=0), np.finfo(p.dtype).tiny))  # a constant falls out below
    by_logits = p * (g - (p * g).sum(axis=-1, keepdims=True)) / len(v)
    by_z = scale * by_logits @ rows
    return (by_z - z * (z * by_z).sum(axis=-1, keepdims=True)) / length


def _views(x: Any, views: int) -> Array:
    x = as_features(x, "features")
    if x.ndim != 3 or len(x) != views:
        raise InputError(f"features of {views} views [views, n, width] are needed, got {list(x.shape)}")
    return x


def _projected(start: Fitted) -> Projected:
    """The head, text rows and scale that a model consists of."""
    model = start.as_projected()
    if model is None:
        raise InputError(
            "test-time adaptation starts from a projection and text rows alone, and "
            f"{start.method} has more to it: "
            "start from zero-shot or ProLIP"
        )
    return model
