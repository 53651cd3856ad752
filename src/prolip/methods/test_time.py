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
1 - lr * decay. Only the centre view x_0 is predicted with the new W, so what is needed of it is

    x_0 W_new = (1 - lr * decay) x_0 W - lr * x_0 (G / (|G| + eps))

The views go through the image tower once, before the step, and everything is reset for the next image. The
authors' program runs the whole tower again for the step, in half precision. TPT's own program adds AugMix on
fine-grained datasets; the paper's test-time runs, on ImageNet and its variants, have none, nor has this.

The step moves the centre view towards what the surest views say. It helps where those are right more often
than the centre view is, and harms where they are not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from prolip.core import Fitted, Head, InputError, Projected, UsageError
from prolip.core.arrays import as_features, unit_rows
from prolip.core.errors import unknown_name
from prolip.encoders import Encoder
from prolip.encoders.preprocess import Preprocess
from prolip.methods.finetune.tuned import Tuned
from prolip.methods.prompts.fitted import Prompted
from prolip.methods.prompts.words import Prompts, phrase_embedding

_NUMBERS_AT_ONCE = 1 << 23  # in the gradients of a few images
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

    def surest(self, logits: Tensor) -> Tensor:
        """Places [n, kept] of the views with the lowest entropy, of logits [n, V, K]."""
        return entropy(logits.softmax(dim=-1)).topk(self.kept, dim=1, largest=False).indices

    @abstractmethod
    def logits(self, x: Any, start: Fitted, encoder: Encoder | None = None) -> Tensor:
        """Scores [n, K] of images, each after its own step.

        Parameters
        ----------
        x
            Features of views [V, n, width], the centre first.
        start
            A fitted model to step from: zero-shot, or ProLIP's.
        encoder
            Whose text tower reads the prompts, where they are what is adapted.
        """


@dataclass(frozen=True)
class TestTimeProLIP(TestTime):
    """Adapt the projection to each image, in closed form."""

    @torch.no_grad()
    def logits(self, x: Any, start: Fitted, encoder: Encoder | None = None) -> Tensor:
        """Scores [n, K], a few images at a time."""
        head, rows, scale = _linear(start)
        x = _views(x, self.views)
        weight, rows = head.weight.to(x.dtype), rows.to(x.dtype)
        size = max(1, _NUMBERS_AT_ONCE // weight.numel())
        parts = [self._step(part, head, weight, rows, scale) for part in x.transpose(0, 1).split(size)]
        return torch.cat(parts)

    def _step(self, x: Tensor, head: Head, weight: Tensor, rows: Tensor, scale: float) -> Tensor:
        """Scores [c, K] of views x [c, V, width]."""
        inputs, fixed = head.split(x)
        v = inputs @ weight
        v = v if fixed is None else v + fixed.to(v.dtype)
        chosen = self.surest(scale * unit_rows(v) @ rows.T)
        inputs_s, v_s = (t.gather(1, chosen[..., None].expand(-1, -1, t.shape[2])) for t in (inputs, v))
        gradient = inputs_s.mT @ entropy_gradient(v_s, rows, scale)  # [c, Do, D]
        move = gradient / gradient.abs().add_(self.eps)
        own = inputs[:, 0]
        new = (1 - self.lr * self.weight_decay) * own @ weight - self.lr * (own[:, None] @ move)[:, 0]
        if fixed is not None:
            new = new + (fixed[:, 0] if fixed.ndim == 3 else fixed).to(new.dtype)
        return scale * unit_rows(new) @ rows.T


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

    def logits(self, x: Any, start: Fitted, encoder: Encoder | None = None) -> Tensor:
        """Scores [n, K], a few images at a time."""
        head, _, scale = _linear(start)
        names = start.text.classes
        if encoder is None or names is None:
            raise InputError("tpt reads prompts by the text tower: it needs the encoder and the class names")
        towers = encoder.towers()
        words = phrase_embedding(encoder, towers, self.init, names[0])
        prompts = Prompts.build(encoder, towers, names, len(words), "end")
        z = unit_rows(head(_views(x, self.views))).transpose(0, 1).to(encoder.device)  # [n, V, D]
        with torch.no_grad():
            chosen = self.surest(scale * z @ prompts.embed(words).T)
        size = max(1, _PROMPTS_AT_ONCE // len(names))
        parts = zip(z.split(size), chosen.split(size), strict=True)
        return torch.cat([self._step(a, b, prompts, words, scale) for a, b in parts]).cpu()

    def _step(self, z: Tensor, chosen: Tensor, prompts: Prompts, words: Tensor, scale: float) -> Tensor:
        """Scores [c, K] of unit embeddings z [c, V, D], the surest views of each named by `chosen`."""
        context = nn.Parameter(words.repeat(len(z), 1, 1, 1))  # [c, 1, M, De]: an image's words are its own
        optimizer = torch.optim.AdamW([context], lr=self.lr, weight_decay=self.weight_decay, eps=self.eps)
        sure = z.gather(1, chosen[..., None].expand(-1, -1, z.shape[2]))
        mean = (scale * sure @ prompts.embed(context).mT).softmax(dim=-1).mean(dim=1)
        entropy(mean).sum().backward()
        optimizer.step()
        with torch.no_grad():
            rows = prompts.embed(context)
            return scale * torch.einsum("cd,ckd->ck", z[:, 0], rows)


WAYS: dict[str, type[TestTime]] = {"prolip": TestTimeProLIP, "tpt": TPT}


def create(way: str, **options: Any) -> TestTime:
    """Test-time adaptation by name: "prolip" or "tpt"."""
    if way not in WAYS:
        raise unknown_name("test-time adaptation", way, WAYS)
    return WAYS[way](**options)


def view_preprocess(preprocess: Preprocess) -> Preprocess:
    """How the views are made: crops from 0.08 of the area on, resized with bilinear interpolation."""
    return replace(preprocess, view_area=0.08, view_interpolation="bilinear")


def entropy(p: Tensor) -> Tensor:
    """Of probabilities along the last dimension."""
    return -torch.special.xlogy(p, p).sum(dim=-1)


def entropy_gradient(v: Tensor, rows: Tensor, scale: float) -> Tensor:
    """The gradient [c, m, D] by embeddings v [c, m, D] of the entropy of their mean prediction."""
    norm = v.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    z = v / norm
    p = (scale * z @ rows.T).softmax(dim=-1)  # [c, m, K]
    tiny = torch.finfo(p.dtype).tiny
    g = -p.mean(dim=1, keepdim=True).clamp_min(tiny).log()  # the constant falls out below
    by_logits = p * (g - (p * g).sum(dim=-1, keepdim=True)) / v.shape[1]
    by_z = scale * by_logits @ rows
    return (by_z - z * (z * by_z).sum(dim=-1, keepdim=True)) / norm


def _views(x: Any, views: int) -> Tensor:
    x = as_features(x, "features")
    if x.ndim != 3 or len(x) != views:
        raise InputError(f"features of {views} views [views, n, width] are needed, got {list(x.shape)}")
    return x


def _linear(start: Fitted) -> tuple[Head, Tensor, float]:
    """Head, text rows and scale of a model whose logits are scale * normalize(head(x)) T'."""
    simple = isinstance(start, (Prompted, Tuned)) or (isinstance(start, Projected) and start.adapter is None)
    if not simple:
        name = start.info.get("method", start.kind)
        raise InputError(
            f"test-time adaptation starts from a projection and text rows alone, and {name} has more to it: "
            "start from zero-shot or ProLIP"
        )
    return start.head, start.text.rows, start.scale  # type: ignore[attr-defined]
