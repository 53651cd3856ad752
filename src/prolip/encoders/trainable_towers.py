"""What a method that trains through a tower may reach inside an encoder.

Each kind of encoder fills in a `Towers`: how to run its two towers so that gradients flow, where the word
embeddings are, which parameters make up the image tower and its last layer, and what else it offers. A method
names what it needs; what is not offered is an error of one sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

# What an encoder may offer, in the words of the error that misses it.
WORDS = "token embeddings in its text tower"
LOCAL = "local features"
IMAGE = "an image tower that can be trained"
ATTENTION = "transformer blocks with query, key and value projections in both towers"
CLASS_TOKEN = "a vision transformer that reads a class token"

Tokens = dict[str, "Tensor"]  # input_ids [P, L], and attention_mask [P, L] where the tower takes one

_QKV = (("q_proj", "k_proj", "v_proj"), ("query", "key", "value"))


@dataclass(frozen=True, eq=False)
class Towers:
    """The two towers of an encoder in torch, heads included, open to gradients."""

    model: nn.Module  # holds every parameter; their names are the ones that tuned tensors are saved under
    # Normalised pixels [B, 3, S, S] to image embeddings [B, D], not of unit length.
    embed_image: Callable[[Tensor], Tensor]
    embed_text: Callable[[Tokens], Tensor]  # tokens to text embeddings [P, D], likewise
    words: Any  # the module that embeds token numbers, `embedding_dim` wide; None where the tower has none
    image_prefixes: tuple[str, ...]  # how names of its parameters begin, its projection included
    last_layer_prefixes: tuple[str, ...]  # likewise, of its last layer
    image_blocks: tuple[nn.Module, ...] = ()  # residual blocks, in order
    text_blocks: tuple[nn.Module, ...] = ()
    # The module that a vision transformer's tokens [B, L, width] enter through, the class token first.
    class_token: nn.Module | None = None
    # Normalised pixels to embeddings of places in the image [B, places, D].
    embed_local: Callable[[Tensor], Tensor] | None = None

    @property
    def offers(self) -> frozenset[str]:
        """What methods can ask for, out of the constants above."""
        return frozenset(
            name
            for name, there in (
                (WORDS, self.words is not None),
                (LOCAL, self.embed_local is not None),
                (IMAGE, True),
                (ATTENTION, all(_has_attention(blocks) for blocks in (self.image_blocks, self.text_blocks))),
                (CLASS_TOKEN, self.class_token is not None),
            )
            if there
        )

    def parameters(self, prefixes: tuple[str, ...]) -> dict[str, nn.Parameter]:
        """Parameters whose names begin with one of these."""
        return {name: p for name, p in self.model.named_parameters() if name.startswith(prefixes)}

    def norms(self) -> dict[str, nn.Parameter]:
        """Scale and shift of the batch norms of the image tower; without any, of both towers' layer norms."""
        from torch.nn import BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, LayerNorm, SyncBatchNorm

        batch_norms = BatchNorm1d, BatchNorm2d, BatchNorm3d, SyncBatchNorm

        def affine(*kinds: type[nn.Module], inside: tuple[str, ...] = ("",)) -> dict[str, nn.Parameter]:
            return {
                f"{name}.{key}": parameter
                for name, module in self.model.named_modules()
                if isinstance(module, kinds) and name.startswith(inside)
                for key, parameter in module.named_parameters(recurse=False)
            }

        return affine(*batch_norms, inside=self.image_prefixes) or affine(LayerNorm, GroupNorm, *batch_norms)

    @contextmanager
    def with_word_embeddings(self, embeddings: Tensor) -> Iterator[None]:
        """Let the text tower read word embeddings [P, L, De] in the place of its own."""
        assert self.words is not None

        def instead(_: nn.Module, __: Any, output: Tensor) -> Tensor:
            return embeddings[:, : output.shape[1]].to(output.dtype)

        with self.words.register_forward_hook(instead):
            yield

    @contextmanager
    def checkpointed(self) -> Iterator[None]:
        """Keep only what enters each block, and compute its inside again on the way back."""
        from torch.utils.checkpoint import checkpoint

        with ExitStack() as undo:
            for block in (*self.image_blocks, *self.text_blocks):
                block.forward = partial(checkpoint, block.forward, use_reentrant=False)
                undo.callback(delattr, block, "forward")
            yield


def attention_of(block: nn.Module) -> tuple[str, nn.Module] | None:
    """The self-attention inside a block, by name: torch's own, or one with three linear projections."""
    from torch import nn

    for name, module in block.named_modules():
        if isinstance(module, nn.MultiheadAttention) or projections_of(module):
            return name, module
    return None


def projections_of(module: nn.Module) -> tuple[str, str, str] | None:
    """What the query, key and value projections of a module are called, if they are linear maps of it."""
    from torch import nn

    for names in _QKV:
        if all(isinstance(getattr(module, name, None), nn.Linear) for name in names):
            return names
    return None


def _has_attention(blocks: tuple[nn.Module, ...]) -> bool:
    return bool(blocks) and all(attention_of(block) is not None for block in blocks)
