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

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from prolip.core import InputError, ProlipError, Task
from prolip.core.arrays import Array
from prolip.core.capabilities import Capability
from prolip.encoders import Encoder
from prolip.features import extract
from prolip.methods.registry import register
from prolip.research.towers.coop import ContextProblem, CoOp
from prolip.research.towers.local_encoder import LocalEncoder
from prolip.research.towers.prompt_tuning import Prompts
from prolip.research.towers.tower_method import TowerTask

if TYPE_CHECKING:
    from torch import Tensor, nn


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

    fitted = CoOp.fitted_by_scores

    def parameters_from(self, start: Tensor, task: TowerTask) -> dict[str, nn.Parameter]:
        """Return the words of each prompt; a phrase gets noise, or all prompts would stay equal."""
        import torch
        from torch import nn

        generator = torch.Generator().manual_seed(self.seed)
        noise = (0.02 * torch.randn(self.prompts, *start.shape, generator=generator)).to(start.device)
        return {"context": nn.Parameter(noise if self.init == "random" else noise + start)}

    def image_encoder(self, encoder: Encoder) -> Encoder:
        """Return the encoder of local features."""
        return LocalEncoder(encoder, self.pooled)

    def embeddings(self, encoder: Encoder, task: Task) -> Array:
        """Return the local embeddings [V, n, L, D] of the images of a task."""
        if not isinstance(task, TowerTask) or len(task.images) != task.n:
            raise InputError(f"{self.name} runs the image tower: a validation set needs its images, too")
        return self.embed(encoder, extract(encoder, task.images, range(task.views)).features)

    def embed(self, encoder: Encoder, x: Array) -> Array:
        """Return local embeddings [.., L, D] of rows [.., L x D]."""
        return x.reshape(*x.shape[:-1], -1, encoder.head.dim)

    def rows(self, problem: ContextProblem, prompts: Prompts) -> Tensor:
        """Return rows [P, K, D] of the prompts, not of unit length."""
        return prompts.embed(problem.context[:, None], unit=False)

    def scores(self, problem: ContextProblem, rows: Tensor, z: Tensor) -> Tensor:
        """Compute scores [B, K] of local embeddings [B, L, D]."""
        return transport_logits(z, rows, problem.task.scale, self.eps, self.iterations, self.pooled)


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
