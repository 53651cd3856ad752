"""PLOT: several prompts for a class, matched to the regions of an image (Chen et al., 2023).

An image is a set of local unit embeddings f_1 .. f_L, a class k a set of P learned prompts g_1 .. g_P. Their
distance is that of optimal transport between the two sets, each region and each prompt with equal weight:

    T = argmin_T  sum_lp T_lp (1 - <f_l, g_p>) - eps H(T),       logit_k = s * sum_lp T_lp <f_l, g_p>

The plan T comes from Sinkhorn's iterations and is held fixed in the gradient. Local embeddings are computed
once for each view, then cached; gradients flow through the text tower alone.

Defaults are the authors': 4 prompts of 16 words from N(0, 0.02), eps 0.1, at most 100 iterations, stopped
when the scaling changes by less than 0.01; 50 epochs in batches of 128. On ImageNet they add the logits of
the whole image's embedding against the mean of a class's prompts, before these are normalised: `pooled=True`.
With a validation set the best epoch is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from prolip.core import Fitted, ProlipError, Task, Text
from prolip.core.arrays import Array, as_features, to_numpy, to_torch
from prolip.core.capabilities import Capability
from prolip.encoders import Encoder
from prolip.methods.base import FitContext
from prolip.methods.registry import register
from prolip.research.towers.coop import ContextProblem, CoOp
from prolip.research.towers.local_encoder import LocalEncoder
from prolip.research.towers.prompt_tuning import Layout, Prompts, class_names
from prolip.research.towers.tower_method import Batches, ImageViews, TowerTask, accuracy

if TYPE_CHECKING:
    from torch import Tensor, nn

    from prolip.research.towers.training import Batch

_IMAGES_AT_ONCE = 32


@register
@dataclass(frozen=True)
class PLOT(CoOp):
    """Prompts matched to local features by optimal transport.

    Parameters
    ----------
    prompts
        The number of prompts P of each class.
    eps
        Weight of the entropy of the plan.
    iterations
        Maximum number of Sinkhorn iterations.
    pooled
        Whether the logits of the whole image are added.
    """

    epochs: int | None = 50
    batch_size: int = 128
    prompts: int = 4
    eps: float = 0.1
    iterations: int = 100
    pooled: bool = False

    name: ClassVar[str] = "plot"
    summary: ClassVar[str] = "several learned prompts a class, matched to regions of the image"
    size: ClassVar[str] = "P x M x De, or P x K x M x De class-specific"
    needs: ClassVar[Capability] = Capability.TOKEN_EMBEDDINGS | Capability.LOCAL_FEATURES
    reads_images: ClassVar[bool] = True

    def solve(self, task: Task, context: FitContext) -> Transported:
        """Learn the prompts on cached local features."""
        problem = ContextProblem.of(self, task)
        words, device = self._context(problem), problem.labels.device

        from torch.nn.functional import cross_entropy

        def logits(view: Tensor) -> Tensor:
            rows = embed_each(problem.prompts, words)
            return transport_logits(view, rows, problem.task.scale, self.matching)

        def loss(batch: Batch) -> Tensor:
            return cross_entropy(logits(problem.views.of(batch)), problem.labels[batch.images])

        score, validation = None, context.validation
        if validation is not None:
            images, y = self.held_out_images(validation), validation.y
            assert problem.task.encoder is not None
            local = LocalEncoder(problem.task.encoder, self.pooled)
            held = to_torch(local_views(local, images, 1, self.seed)[0], device).split(_IMAGES_AT_ONCE)
            score = lambda: accuracy([logits(part) for part in held], y)  # noqa: E731
        towers, trained = problem.prompts.towers, {"context": words}
        with problem.views:
            figures = self.train(
                problem.task, towers, trained, loss, context.progress, validation_score=score
            )
        task, rows = problem.task, to_numpy(embed_each(problem.prompts, words.detach()))
        scale, layout, learned = task.scale, problem.layout, to_numpy(words)
        assert task.encoder is not None
        encoder, matching = task.encoder, self.matching
        return Transported(task.text, scale, learned, rows, layout, matching, encoder, report=figures)

    @property
    def matching(self) -> Matching:
        """Return the options of the matching."""
        return Matching(self.eps, self.iterations, self.pooled)

    def views(self, task: TowerTask, encoder: Encoder) -> ImageViews:
        """Return the local embeddings [n, L, D] to train on."""
        local = LocalEncoder(encoder, self.pooled)

        def cached() -> Array:
            return local_views(local, task.images, task.views, self.seed)  # [V, n, L, D]

        return ImageViews(task, local, local.unflatten, cached, self.view_area, self.seed)

    def _context(self, problem: ContextProblem) -> nn.Parameter:
        """Return the start words of each prompt; a phrase gets noise, or all prompts would stay equal."""
        import torch
        from torch import nn

        shape = (self.prompts, *problem.context.shape)
        noise = 0.02 * torch.randn(shape, generator=torch.Generator().manual_seed(self.seed))
        noise = noise.to(problem.context.device)
        return nn.Parameter(noise if self.init == "random" else noise + problem.context.detach())


@dataclass(frozen=True)
class Matching:
    """How prompts are matched to regions: Sinkhorn's options, and whether the whole image counts too."""

    eps: float
    iterations: int
    pooled: bool


def embed_each(prompts: Prompts, contexts: Tensor) -> Tensor:
    """Return rows [P, K, D], not of unit length, of P contexts, each [M, De] or [K, M, De]."""
    many = contexts if contexts.ndim == 4 else contexts[:, None]
    return prompts.embed(many, unit=False)


def sinkhorn(cost: Tensor, eps: float = 0.1, iterations: int = 100, stop: float = 1e-2) -> Tensor:
    """Compute the transport plan [.., L, P] between two sets of equal weights, under costs [.., L, P].

    Its columns sum to 1 / P exactly, its rows approximately to 1 / L.
    """
    import torch

    kernel = torch.exp(-cost / eps)
    u, v = 1 / cost.shape[-2], 1 / cost.shape[-1]
    r, c = torch.ones_like(kernel[..., 0]), torch.ones_like(kernel[..., 0, :])
    for _ in range(iterations):
        before = r
        r = u / torch.einsum("...lp,...p->...l", kernel, c)
        c = v / torch.einsum("...lp,...l->...p", kernel, r)
        if (r - before).abs().mean() < stop:
            break
    plan = r[..., None] * kernel * c[..., None, :]
    if not torch.isfinite(plan).all():
        raise ProlipError(f"Sinkhorn's iterations overflow at eps={eps}: raise it")
    return plan


def transport_logits(regions: Tensor, rows: Tensor, scale: float, matching: Matching) -> Tensor:
    """Compute scores [B, K] of local embeddings [B, L, D] against prompts [P, K, D]; neither are unit."""
    import torch
    from torch.nn.functional import normalize

    unit = normalize(regions, dim=-1).to(rows.dtype)
    local = unit[:, 1:] if matching.pooled else unit
    similar = torch.einsum("bld,pkd->bklp", local, normalize(rows, dim=-1))
    plan = sinkhorn(1 - similar.detach().float(), matching.eps, matching.iterations)
    scores = (plan * similar).sum(dim=(2, 3))
    if matching.pooled:
        scores = scores + unit[:, 0] @ normalize(rows.mean(dim=0), dim=-1).T
    return scale * scores


def local_views(encoder: LocalEncoder, images: Sequence[Any], views: int, seed: int) -> Array:
    """Compute local embeddings [V, n, L, D] of images: the centre, then random views."""
    indices = list(range(len(images)))
    found = []
    with Batches(images, encoder.preprocess, seed) as batches:
        for view in range(views):
            for start in range(0, len(indices), _IMAGES_AT_ONCE):
                chosen = indices[start : start + _IMAGES_AT_ONCE]
                found.append(encoder.encode(batches.get(chosen, view or None)))
    return encoder.unflatten(np.concatenate(found).reshape(views, len(indices), -1))


@dataclass(frozen=True, eq=False)
class Transported(Fitted):
    """Prompts [P, K, D] matched to the local features of images, which a `LocalEncoder` computes."""

    text: Text  # hand-written, for the class names
    scale: float
    context: Array
    rows: Array
    layout: Layout
    matching: Matching
    encoder: Encoder

    def logits(self, x: Any) -> Array:
        """Compute scores [m, K] of local features [m, regions x D]."""
        x = as_features(x, "local features")
        regions = to_torch(x.reshape(len(x), -1, self.rows.shape[2]))
        rows = to_torch(self.rows.astype(x.dtype))
        parts = [
            transport_logits(part, rows, self.scale, self.matching) for part in regions.split(_IMAGES_AT_ONCE)
        ]
        return np.concatenate([to_numpy(part) for part in parts])

    def encoder_for(self, base: Any) -> Any:
        """Return the encoder of local features of the base model."""
        return LocalEncoder(base, self.matching.pooled)

    def with_text(self, text: Any) -> Transported:
        """Use the same contexts with other class names."""
        names, encoder = class_names(text, self.method), self.encoder
        if self.context.ndim == 4:
            return super().with_text(text)  # type: ignore[return-value]
        context = to_torch(self.context, encoder.device)
        rows = to_numpy(embed_each(self.layout.prompts(encoder, names), context))
        return replace(self, text=text, rows=rows)
