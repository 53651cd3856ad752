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

from prolip.core import ProlipError, Task, Text
from prolip.core.arrays import Array, to_numpy, to_torch
from prolip.core.capabilities import Capability
from prolip.methods.base import FitContext
from prolip.methods.registry import register
from prolip.research.towers.coop import ContextProblem, CoOp
from prolip.research.towers.local_encoder import LocalEncoder
from prolip.research.towers.prompt_tuning import Prompts
from prolip.research.towers.tower_method import Batches, ImageViews, TowerFitted, TowerTask, accuracy

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
    size: ClassVar[str] = "P x M x De"
    needs: ClassVar[Capability] = Capability.TOKEN_EMBEDDINGS | Capability.LOCAL_FEATURES
    reads_images: ClassVar[bool] = True

    def solve(self, task: Task, context: FitContext) -> TowerFitted:
        """Learn the prompts on cached local features."""
        problem = ContextProblem.of(self, task)
        words, device = self._context(problem), problem.labels.device
        local = LocalEncoder(problem.task.encoder, self.pooled)

        from torch.nn.functional import cross_entropy

        def logits(view: Tensor, rows: Tensor) -> Tensor:
            return transport_logits(view, rows, task.scale, self.eps, self.iterations, self.pooled)

        def rows() -> Tensor:
            return embed_each(problem.prompts, words)

        def loss(batch: Batch) -> Tensor:
            return cross_entropy(logits(problem.views.of(batch), rows()), problem.labels[batch.images])

        def fitted(text: Text) -> TowerFitted:
            learned = embed_each(problem.prompts_of(text), words.detach()).detach()

            def scores(x: Array) -> Array:
                parts = to_torch(local.unflatten(x), device).split(_IMAGES_AT_ONCE)
                return np.concatenate([to_numpy(logits(part, learned)) for part in parts])

            return TowerFitted(task.linear, text, task.scale, fitted, local, scores, to_numpy(words.detach()))

        score, validation = None, context.validation
        if validation is not None:
            images, y = self.held_out_images(validation), validation.y
            held = to_torch(local_views(local, images, 1, self.seed)[0], device).split(_IMAGES_AT_ONCE)
            score = lambda: accuracy([logits(part, rows()) for part in held], y)  # noqa: E731
        with problem.views:
            trained = {"context": words}
            figures = self.train(problem.task, trained, loss, context.progress, validation_score=score)
        return replace(fitted(task.text), report=figures)

    def views(self, task: TowerTask) -> ImageViews:
        """Return the local embeddings [n, L, D] to train on."""
        local = LocalEncoder(task.encoder, self.pooled)

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


def embed_each(prompts: Prompts, contexts: Tensor) -> Tensor:
    """Return rows [P, K, D], not of unit length, of P contexts [P, M, De]."""
    return prompts.embed(contexts[:, None], unit=False)


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


def transport_logits(
    regions: Tensor, rows: Tensor, scale: float, eps: float, iterations: int, pooled: bool
) -> Tensor:
    """Compute scores [B, K] of local embeddings [B, L, D] against prompts [P, K, D]; neither are unit.

    With `pooled` the first region is the whole image, whose own scores are added.
    """
    import torch
    from torch.nn.functional import normalize

    unit = normalize(regions, dim=-1).to(rows.dtype)
    local = unit[:, 1:] if pooled else unit
    similar = torch.einsum("bld,pkd->bklp", local, normalize(rows, dim=-1))
    plan = sinkhorn(1 - similar.detach().float(), eps, iterations)
    scores = (plan * similar).sum(dim=(2, 3))
    if pooled:
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
