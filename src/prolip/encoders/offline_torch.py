"""The offline encoder in torch, for GPUs and for methods that train through its towers.

`efficientnet_lite.py` and `sentence.py` describe the two networks.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from prolip.core.arrays import Array
from prolip.core.head import Head
from prolip.encoders.efficientnet_lite import EPS, STEM, WIDTH, BlockShape, blocks, same_pads
from prolip.encoders.sentence import BRANCH, CHUNKS, NGRAMS
from prolip.encoders.sentence import WIDTH as TEXT_WIDTH
from prolip.encoders.trainable_towers import Towers

Layer = TypeVar("Layer", bound=nn.Module)


class SameConv2d(nn.Conv2d):
    """A convolution without bias, padded as TensorFlow's "same"."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, H, W] to [B, outputs, ceil(H / stride), ceil(W / stride)]."""
        top, bottom = same_pads(x.shape[2], self.kernel_size[0], self.stride[0])
        left, right = same_pads(x.shape[3], self.kernel_size[1], self.stride[1])
        return super().forward(functional.pad(x, (left, right, top, bottom)))


def _batch_norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=EPS, momentum=0.01)


class Block(nn.Module):
    """One inverted residual; its parameters have the names of the published checkpoint."""

    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        middle = shape.inputs * shape.expansion
        self.residual = shape.residual
        self.expands = shape.expansion != 1
        if self.expands:
            self._expand_conv = SameConv2d(shape.inputs, middle, 1)
            self._bn0 = _batch_norm(middle)
        self._depthwise_conv = SameConv2d(middle, middle, shape.kernel, shape.stride, groups=middle)
        self._bn1 = _batch_norm(middle)
        self._project_conv = SameConv2d(middle, shape.outputs, 1)
        self._bn2 = _batch_norm(shape.outputs)

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, H, W] to [B, outputs, H', W']."""
        y: Tensor = functional.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        y = functional.relu6(self._bn1(self._depthwise_conv(y)))
        y = self._bn2(self._project_conv(y))
        return x + y if self.residual else y


class EfficientNetLite0(nn.Module):
    """The frozen image tower; its parameters have the names of the published checkpoint."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = SameConv2d(3, STEM, 3, 2), _batch_norm(STEM)
        shapes = list(blocks())
        self._blocks = nn.ModuleList(Block(shape) for shape in shapes)
        self._conv_head, self._bn1 = SameConv2d(shapes[-1].outputs, WIDTH, 1), _batch_norm(WIDTH)
        self._fc = nn.Linear(WIDTH, 1000)
        self.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
        self.eval().requires_grad_(False)

    @property
    def residual_blocks(self) -> tuple[nn.Module, ...]:
        """The blocks of all stages, in order."""
        return tuple(self._blocks)

    def feature_map(self, x: Tensor) -> Tensor:
        """Compute local features [B, 1280, 7, 7] of normalised pixels [B, 3, 224, 224]."""
        x = functional.relu6(self._bn0(self._conv_stem(x)))
        for block in self._blocks:
            x = block(x)
        return functional.relu6(self._bn1(self._conv_head(x)))

    def forward(self, x: Tensor) -> Tensor:
        """Compute pooled features [B, 1280], before the classifier."""
        return self.feature_map(x).mean(dim=(2, 3))


class Words(nn.Module):
    """Word vectors by token number, stored with one byte per number and decoded on use."""

    embedding_dim = TEXT_WIDTH

    def __init__(self, table: Array, scale: Array, offset: Array) -> None:
        super().__init__()
        self.weight: Tensor
        self.scale: Tensor
        self.offset: Tensor
        self.register_buffer("weight", torch.from_numpy(table))  # uint8 [vocabulary, 512]
        self.register_buffer("scale", torch.from_numpy(scale))  # [17], of each chunk
        self.register_buffer("offset", torch.from_numpy(offset))

    def forward(self, tokens: Tensor) -> Tensor:
        """Look up vectors [.., L, 512] of token numbers [.., L]."""
        chunk = tokens % CHUNKS
        return self.weight[tokens].float() * self.scale[chunk, None] + self.offset[chunk, None]


class Branch(nn.Module):
    """Two convolutions along the words, each with a residual around it."""

    def __init__(self, before: int, first: nn.Conv1d, second: nn.Conv1d) -> None:
        super().__init__()
        self.pads = (before, first.kernel_size[0] - 1 - before)
        self.first, self.second = first, second

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """[B, 256, L] to the same; `mask` [B, 1, L] is 1 where a token is, and 0 beyond the end."""
        for convolution in (self.first, self.second):
            x = x * mask
            x = torch.relu(convolution(functional.pad(x, self.pads))) + x
        return x


class SentenceTower(nn.Module):
    """The frozen text tower: unit embeddings [P, 512] of token numbers [P, L]."""

    def __init__(self, weights: Any) -> None:
        super().__init__()
        self.eps: float = weights.eps
        self.words = Words(weights.table, weights.scale, weights.lo)
        self.project = _linear(weights.proj_W, weights.proj_b)
        self.norm = _layer_norm(weights.ln_g_all, weights.ln_b_all, self.eps)
        self.branches = nn.ModuleList(
            Branch(before, _convolution(w1, b1), _convolution(w2, b2))
            for (_, before), w1, b1, w2, b2 in zip(
                NGRAMS, weights.w1, weights.b1, weights.w2, weights.b2, strict=True
            )
        )
        self.feature_norm = _layer_norm(weights.ln_g, weights.ln_b, self.eps)
        self.pool = _linear(weights.cnn_W, weights.cnn_b)
        self.d0, self.d1, self.p1 = _linear(weights.d0), _linear(weights.d1), _linear(weights.p1)
        self.d2, self.d3, self.p3 = _linear(weights.d2), _linear(weights.d3), _linear(weights.p3)
        self.eval().requires_grad_(False)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Embed token numbers [P, L]; mask [P, L] is true where a token is."""
        words = self.words(tokens)  # [P, L, 512]
        mask = mask[..., None].to(words.dtype)
        parts = self.norm(self.project(words)).mT.split(BRANCH, dim=1)
        grams = [branch(part, mask.mT).mT for branch, part in zip(self.branches, parts, strict=True)]
        each = self.pool(self.feature_norm(torch.cat([words, *grams], dim=-1)))
        m = (each * mask).sum(dim=1) / mask.sum(dim=1).sqrt()
        y = torch.relu(self.p1(m) + self.d1(torch.relu(self.d0(m))))
        z = torch.tanh(self.p3(y) + self.d3(torch.relu(self.d2(y))))
        return functional.normalize(z, dim=-1)


def _linear(weight: Array, bias: Array | None = None) -> nn.Linear:
    return _fill(nn.Linear(weight.shape[0], weight.shape[1], bias=bias is not None), weight.T, bias)


def _convolution(weight: Array, bias: Array) -> nn.Conv1d:
    kernel = weight.reshape(-1, BRANCH, BRANCH).transpose(2, 1, 0)  # [out, in, n]
    return _fill(nn.Conv1d(BRANCH, BRANCH, kernel.shape[2]), kernel, bias)


def _layer_norm(gain: Array, shift: Array, eps: float) -> nn.LayerNorm:
    return _fill(nn.LayerNorm(len(gain), eps=eps), gain, shift)


def _fill(layer: Layer, weight: Array, bias: Array | None) -> Layer:
    layer.load_state_dict(
        {"weight": torch.tensor(weight)} | ({} if bias is None else {"bias": torch.tensor(bias)})
    )
    return layer


class Modules(NamedTuple):
    """The image tower and the text tower."""

    image: EfficientNetLite0
    text: SentenceTower


class Joined(nn.Module):
    """The whole encoder as one module, so that each of its tensors has one name."""

    def __init__(self, modules: Modules, head: Head, text_head: Head) -> None:
        super().__init__()
        self.image, self.text = modules
        self.projection = nn.Parameter(torch.tensor(head.weight), requires_grad=False)  # W0 [1280, 512]
        self.text_projection: Tensor
        self.offset: Tensor
        self.register_buffer("text_projection", torch.tensor(text_head.weight))  # the identity [512, 512]
        self.register_buffer("offset", torch.tensor(text_head.bias))  # -mu [512]


def open_towers(modules: Modules, head: Head, text_head: Head, copy: bool, device: str) -> Towers:
    """Describe the towers for training; a copy shares no tensor with the encoder."""
    joined = Joined(modules, head, text_head)
    joined = (deepcopy(joined) if copy else joined).to(device)
    image, text = joined.image, joined.text

    def embed_text(tokens: dict[str, Tensor]) -> Tensor:
        rows = text(tokens["input_ids"], tokens["attention_mask"].bool())
        embeddings: Tensor = rows @ joined.text_projection + joined.offset
        return embeddings

    return Towers(
        joined,
        lambda pixels: image(pixels) @ joined.projection,
        embed_text,
        words=text.words,
        # Without the ImageNet classifier.
        image_prefixes=("image._conv", "image._bn", "image._blocks", "projection"),
        last_layer_prefixes=("image._conv_head.", "image._bn1.", "projection"),
        image_blocks=image.residual_blocks,
        embed_local=lambda pixels: image.feature_map(pixels).flatten(2).mT @ joined.projection,
    )
