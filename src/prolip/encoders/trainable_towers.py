"""The parts of an encoder that a method can train.

Each kind of encoder provides a `Towers`: how to run its two towers with gradients, where the word embeddings
are, which parameters belong to the image tower and its last layer, and so on. A method declares what it
needs; it is an error if the encoder does not offer it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prolip.core.capabilities import Capability

if TYPE_CHECKING:
    from torch import Tensor, nn

Tokens = dict[str, "Tensor"]  # input_ids [P, L], and attention_mask [P, L] where the tower takes one

QUERY_KEY_VALUE = ("q_proj", "k_proj", "v_proj")


@dataclass(frozen=True, eq=False)
class Towers:
    """The two towers of an encoder in torch, heads included, open to gradients."""

    model: nn.Module  # has every parameter; tuned tensors are saved under their names
    # Normalised pixels [B, 3, S, S] to image embeddings [B, D], not of unit length.
    embed_image: Callable[[Tensor], Tensor]
    embed_text: Callable[[Tokens], Tensor]  # tokens to text embeddings [P, D], likewise
    words: Any  # the module that embeds token numbers, `embedding_dim` wide, if there is one
    image_prefixes: tuple[str, ...]  # prefixes of its parameters, with its projection
    last_layer_prefixes: tuple[str, ...]  # prefixes of its last layer
    image_blocks: tuple[nn.Module, ...] = ()  # residual blocks, in order
    text_blocks: tuple[nn.Module, ...] = ()
    # The module that a vision transformer's tokens [B, L, width] enter through, the class token first.
    class_token: nn.Module | None = None
    # Normalised pixels to embeddings of places in the image [B, places, D].
    embed_local: Callable[[Tensor], Tensor] | None = None

    @property
    def offers(self) -> Capability:
        """What methods can use."""
        towers = self.image_blocks, self.text_blocks
        has_attention = all(blocks and all(map(attention_of, blocks)) for blocks in towers)
        offered = Capability.EMBEDDINGS | Capability.IMAGE_TOWER
        for capability, there in (
            (Capability.TOKEN_EMBEDDINGS, self.words is not None),
            (Capability.LOCAL_FEATURES, self.embed_local is not None),
            (Capability.ATTENTION, has_attention),
            (Capability.CLASS_TOKEN, self.class_token is not None),
        ):
            offered |= capability if there else Capability(0)
        return offered

    def parameters(self, prefixes: tuple[str, ...]) -> dict[str, nn.Parameter]:
        """Return the parameters with one of these prefixes."""
        return {name: p for name, p in self.model.named_parameters() if name.startswith(prefixes)}

    def norms(self) -> dict[str, nn.Parameter]:
        """Return scale and shift of the image tower's batch norms, or of both towers' layer norms."""
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
        """Replace the text tower's word embeddings by [P, L, De]."""
        assert self.words is not None

        def instead(_: nn.Module, __: Any, output: Tensor) -> Tensor:
            return embeddings[:, : output.shape[1]].to(output.dtype)

        with self.words.register_forward_hook(instead):
            yield


def attention_of(block: nn.Module) -> tuple[str, nn.Module] | None:
    """Return the self-attention of a block with its name: torch's own, or one with three linear maps."""
    from torch import nn

    for name, module in block.named_modules():
        maps = (getattr(module, projection, None) for projection in QUERY_KEY_VALUE)
        if isinstance(module, nn.MultiheadAttention) or all(isinstance(linear, nn.Linear) for linear in maps):
            return name, module
    return None
