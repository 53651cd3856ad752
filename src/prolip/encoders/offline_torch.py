"""The offline encoder in torch: for GPUs, and for methods that train through its towers."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from prolip.core.arrays import Array
from prolip.core.head import Head
from prolip.encoders.efficientnet_lite_torch import EfficientNetLite0
from prolip.encoders.sentence_torch import SentenceTower
from prolip.encoders.trainable_towers import Towers


class Modules(NamedTuple):
    """The image tower and the text tower, as torch modules."""

    image: EfficientNetLite0
    text: SentenceTower

    @classmethod
    def of(cls, image_weights: Mapping[str, Array], text_weights: Any, device: str) -> Modules:
        """The towers with these weights, frozen."""
        return cls(EfficientNetLite0.of(image_weights).to(device), SentenceTower(text_weights).to(device))


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
    """What a method may reach; a copy shares nothing with the towers it was made of."""
    joined = Joined(modules, head, text_head)
    joined = (deepcopy(joined) if copy else joined).to(device)
    image, text = joined.image, joined.text

    def embed_text(tokens: dict[str, Tensor]) -> Tensor:
        return (
            text(tokens["input_ids"], tokens["attention_mask"].bool()) @ joined.text_projection
            + joined.offset
        )

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
