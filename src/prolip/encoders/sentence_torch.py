"""The universal sentence encoder in torch, to learn prompts through it. `sentence.py` tells what it is."""

from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from prolip.core.arrays import Array
from prolip.encoders.sentence import BRANCH, CHUNKS, NGRAMS, WIDTH

Layer = TypeVar("Layer", bound=nn.Module)


class Words(nn.Module):
    """Word vectors by token number, kept in a byte a number and made real ones as they are asked for."""

    embedding_dim = WIDTH

    def __init__(self, table: Array, scale: Array, offset: Array) -> None:
        super().__init__()
        self.weight: Tensor
        self.scale: Tensor
        self.offset: Tensor
        self.register_buffer("weight", torch.from_numpy(table))  # uint8 [vocabulary, 512]
        self.register_buffer("scale", torch.from_numpy(scale))  # [17], of each chunk
        self.register_buffer("offset", torch.from_numpy(offset))

    def forward(self, tokens: Tensor) -> Tensor:
        """Vectors [.., L, 512] of token numbers [.., L]."""
        chunk = tokens % CHUNKS
        return self.weight[tokens].float() * self.scale[chunk, None] + self.offset[chunk, None]


class Branch(nn.Module):
    """Two convolutions along the words, each with a residual around it."""

    def __init__(self, before: int, first: nn.Conv1d, second: nn.Conv1d) -> None:
        super().__init__()
        self.pads = (before, first.kernel_size[0] - 1 - before)
        self.first, self.second = first, second

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        """[B, 256, L] to the same; `there` [B, 1, L] is 1 where a token is, and 0 beyond the end."""
        for convolution in (self.first, self.second):
            x = x * there
            x = torch.relu(convolution(functional.pad(x, self.pads))) + x
        return x


class SentenceTower(nn.Module):
    """Unit embeddings [P, 512] of token numbers [P, L]."""

    def __init__(self, weights: Any) -> None:
        super().__init__()
        self.eps: float = weights.eps
        self.words = Words(weights.table, weights.scale, weights.lo)
        self.project = _linear(weights.proj_W, weights.proj_b)
        self.norm = _norm(weights.ln_g_all, weights.ln_b_all, self.eps)
        self.branches = nn.ModuleList(
            Branch(before, _convolution(w1, b1), _convolution(w2, b2))
            for (_, before), w1, b1, w2, b2 in zip(
                NGRAMS, weights.w1, weights.b1, weights.w2, weights.b2, strict=True
            )
        )
        self.feature_norm = _norm(weights.ln_g, weights.ln_b, self.eps)
        self.pool = _linear(weights.cnn_W, weights.cnn_b)
        self.d0, self.d1, self.p1 = _linear(weights.d0), _linear(weights.d1), _linear(weights.p1)
        self.d2, self.d3, self.p3 = _linear(weights.d2), _linear(weights.d3), _linear(weights.p3)
        self.eval().requires_grad_(False)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Embed token numbers [P, L]; mask [P, L] is true where a token is."""
        words = self.words(tokens)  # [P, L, 512]
        there = mask[..., None].to(words.dtype)
        parts = self.norm(self.project(words)).mT.split(BRANCH, dim=1)
        grams = [branch(part, there.mT).mT for branch, part in zip(self.branches, parts, strict=True)]
        each = self.pool(self.feature_norm(torch.cat([words, *grams], dim=-1)))
        m = (each * there).sum(dim=1) / there.sum(dim=1).sqrt()
        y = torch.relu(self.p1(m) + self.d1(torch.relu(self.d0(m))))
        z = torch.tanh(self.p3(y) + self.d3(torch.relu(self.d2(y))))
        return functional.normalize(z, dim=-1)


def _linear(weight: Array, bias: Array | None = None) -> nn.Linear:
    """The map x W + b, W [in, out]."""
    layer = nn.Linear(weight.shape[0], weight.shape[1], bias=bias is not None)
    return _fill(layer, weight.T, bias)


def _convolution(weight: Array, bias: Array) -> nn.Conv1d:
    """Along the words, W [n * in, out]."""
    kernel = weight.reshape(-1, BRANCH, BRANCH).transpose(2, 1, 0)  # [out, in, n]
    return _fill(nn.Conv1d(BRANCH, BRANCH, kernel.shape[2]), kernel, bias)


def _norm(gain: Array, shift: Array, eps: float) -> nn.LayerNorm:
    return _fill(nn.LayerNorm(len(gain), eps=eps), gain, shift)


def _fill(layer: Layer, weight: Array, bias: Array | None) -> Layer:
    layer.load_state_dict(
        {"weight": torch.tensor(weight)} | ({} if bias is None else {"bias": torch.tensor(bias)})
    )
    return layer
