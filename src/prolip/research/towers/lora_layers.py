"""LoRA layers by peft around query, key and value of every block of both towers."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from prolip.core import ModelError
from prolip.encoders.trainable_towers import QUERY_KEY_VALUE, Towers, attention_of
from prolip.io.environment import require
from prolip.research.towers.training import seeded


def inject(towers: Towers, rank: int, alpha: int, dropout: float, seed: int) -> dict[str, nn.Parameter]:
    """Put the factors A and B into the towers, and return them by name."""
    peft = require("peft", "lora")
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=dropout,
        use_rslora=True,  # alpha / sqrt(r)
        target_modules=list(_targets(towers)),
    )
    with seeded(seed):
        peft.inject_adapter_in_model(config, towers.model)
    return {name: factor for name, factor in towers.model.named_parameters() if ".lora_" in name}


class SeparateAttention(nn.Module):
    """torch's self-attention with its packed projection split into three linear maps."""

    def __init__(self, packed: nn.MultiheadAttention) -> None:
        super().__init__()
        width = packed.embed_dim
        self.heads = packed.num_heads
        weights = packed.in_proj_weight.detach().split(width)
        biases = (None,) * 3 if packed.in_proj_bias is None else packed.in_proj_bias.detach().split(width)
        maps = [_linear(weight, bias) for weight, bias in zip(weights, biases, strict=True)]
        self.q_proj, self.k_proj, self.v_proj = maps
        self.out_proj = packed.out_proj

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **_: Any
    ) -> tuple[Tensor, None]:
        """Compute attention as torch does, batch first; the weights are not returned."""
        q, k, v = (
            project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project, x in ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value))
        )
        mask = None if attn_mask is None else attn_mask.to(q.dtype)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out_proj(attended.transpose(1, 2).flatten(2)), None


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device=weight.device)
    made.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
    return made.requires_grad_(False)


def _targets(towers: Towers) -> Iterator[str]:
    """Yield the names of the linear maps to change; packed ones are split."""
    names = {id(module): name for name, module in towers.model.named_modules()}
    for block in (*towers.image_blocks, *towers.text_blocks):
        found = attention_of(block)
        assert found is not None  # the method requires blocks that have it
        inside, attention = found
        if isinstance(attention, nn.MultiheadAttention):
            if not attention.batch_first:
                raise ModelError("clip_lora needs attention with batch_first=True, and this model has False")
            owner, _, own = inside.rpartition(".")
            setattr(block.get_submodule(owner), own, SeparateAttention(attention))
        for projection in QUERY_KEY_VALUE:
            yield f"{names[id(block)]}.{inside}.{projection}"
