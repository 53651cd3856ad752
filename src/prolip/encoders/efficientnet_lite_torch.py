"""EfficientNet-Lite0 in torch: for GPUs, and to train through it. `efficientnet_lite.py` tells what it is."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from prolip.core.arrays import Array
from prolip.encoders.efficientnet_lite import EPS, STEM, WIDTH, BlockShape, blocks, same_pads


class SameConv2d(nn.Conv2d):
    """A convolution without bias, padded as TensorFlow's "same"."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, H, W] to [B, outputs, ceil(H / stride), ceil(W / stride)]."""
        top, bottom = same_pads(x.shape[2], self.kernel_size[0], self.stride[0])
        left, right = same_pads(x.shape[3], self.kernel_size[1], self.stride[1])
        return super().forward(nn.functional.pad(x, (left, right, top, bottom)))


def _norm(channels: int) -> nn.BatchNorm2d:
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
            self._bn0 = _norm(middle)
        self._depthwise_conv = SameConv2d(middle, middle, shape.kernel, shape.stride, groups=middle)
        self._bn1 = _norm(middle)
        self._project_conv = SameConv2d(middle, shape.outputs, 1)
        self._bn2 = _norm(shape.outputs)

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, H, W] to [B, outputs, H', W']."""
        y = nn.functional.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        y = nn.functional.relu6(self._bn1(self._depthwise_conv(y)))
        y = self._bn2(self._project_conv(y))
        return x + y if self.residual else y


class EfficientNetLite0(nn.Module):
    """Parameter names are those of the published checkpoint, which loads as it is."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = SameConv2d(3, STEM, 3, 2), _norm(STEM)
        shapes = list(blocks())
        self._blocks = nn.ModuleList(Block(shape) for shape in shapes)
        self._conv_head, self._bn1 = SameConv2d(shapes[-1].outputs, WIDTH, 1), _norm(WIDTH)
        self._fc = nn.Linear(WIDTH, 1000)

    @classmethod
    def of(cls, weights: Mapping[str, Array]) -> EfficientNetLite0:
        """The network with these weights, frozen."""
        model = cls()
        model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
        return model.eval().requires_grad_(False)

    @property
    def residual_blocks(self) -> tuple[nn.Module, ...]:
        """The blocks of all stages, in order."""
        return tuple(self._blocks)

    def feature_map(self, x: Tensor) -> Tensor:
        """Local features [B, 1280, 7, 7] of normalised pixels [B, 3, 224, 224]."""
        x = nn.functional.relu6(self._bn0(self._conv_stem(x)))
        for block in self._blocks:
            x = block(x)
        return nn.functional.relu6(self._bn1(self._conv_head(x)))

    def forward(self, x: Tensor) -> Tensor:
        """Pooled features [B, 1280], before the classifier."""
        return self.feature_map(x).mean(dim=(2, 3))
