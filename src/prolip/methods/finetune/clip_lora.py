"""CLIP-LoRA: low-rank changes of query, key and value in every block of both towers (Zanella et al., 2024).

    W x  ->  W x + alpha / sqrt(r) B A x,        A [r, in], B [out, r],   r = 2, alpha = 1

A starts random, B at zero, and dropout of 0.25 falls on the input of A. The layers are peft's. open_clip has
query, key and value in one packed matrix, which peft would give a single change of rank r, and the output
projection one too; so its attention is first written out as three linear maps, with the same result.

Defaults are the authors': AdamW at 2e-4, weight decay 0.01, batches of 32, 500 steps for each shot, a cosine
down to 1e-6, crops of 0.08 to 1 of the picture.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from prolip.core import ModelError, Task
from prolip.encoders.towers import ATTENTION, IMAGE, Towers, attention_of, projections_of
from prolip.methods.base import Progress
from prolip.methods.finetune.base import FineTuning
from prolip.methods.finetune.tuned import Tuned, merge
from prolip.methods.training import Recipe


@dataclass(frozen=True)
class CLIPLoRA(FineTuning):
    """LoRA on the attention of both towers.

    Parameters
    ----------
    rank, alpha, dropout
        Of LoRA.
    steps_per_shot
        Steps in all, over N.
    epochs
        None: as many as the steps take; a number is used instead of the steps.
    """

    lr: float = 2e-4
    epochs: int | None = None  # type: ignore[assignment]
    batch_size: int = 32
    view_area: float = 0.08
    rank: int = 2
    alpha: int = 1
    dropout: float = 0.25
    steps_per_shot: int = 500
    weight_decay: float = 0.01

    name: ClassVar[str] = "clip_lora"
    summary: ClassVar[str] = "low-rank changes of the attention in both towers (transformers only)"
    size: ClassVar[str] = "r x 6 x width x blocks, of each tower"
    needs: ClassVar[tuple[str, ...]] = (IMAGE, ATTENTION)

    def choose(self, towers: Towers) -> dict[str, nn.Parameter]:
        """LoRA's factors, put into the towers: this changes them."""
        targets = dict(_targets(towers))
        _inject(towers.model, list(targets.values()), self)
        chosen = {}
        for key, module in targets.items():
            layer: Any = towers.model.get_submodule(module)
            chosen[f"{key}|A"] = layer.lora_A["default"].weight
            chosen[f"{key}|B"] = layer.lora_B["default"].weight
        return chosen

    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Tuned:
        """Train the factors in a copy of the towers, then merge them."""
        started = time.perf_counter()
        task, encoder, towers = self.open(task, copy=True)
        trained = self.choose(towers)
        for name, module in towers.model.named_modules():
            if "lora_dropout" in name:  # the towers themselves stay as they are when they predict
                module.train()
        figures = self.run(task, encoder, towers, trained, progress)
        factors = {name: parameter.detach().cpu().clone() for name, parameter in trained.items()}
        lora: dict[str, Any] = {"rank": self.rank, "alpha": self.alpha}
        adapted = encoder.with_tensors(merge(encoder, factors, lora))
        assert task.text.classes is not None
        text = adapted.text(task.text.classes, task.templates)
        info = self.report(task, started, lora=lora, **figures)
        return Tuned(text, task.scale, factors, adapted, info)

    def recipe(self, task: Task) -> Recipe:
        """AdamW for a number of steps."""
        return Recipe(
            self.lr,
            self.epochs or 0,
            self.batch_size,
            steps=round(self.steps_per_shot * task.shots) if self.epochs is None else None,
            optimizer="adamw",
            weight_decay=self.weight_decay,
            floor=1e-6,
            per_step=True,
            seed=self.seed,
            checkpoint=self.checkpoint,
        )

    def parameters(self, task: Task) -> int:
        """Two factors for each projection."""
        return self.count_in(self.open(task)[2])

    def count_in(self, towers: Towers) -> int:
        """The same for towers alone."""
        blocks = (*towers.image_blocks, *towers.text_blocks)
        return sum(self.rank * sum(shape) for block in blocks for shape in _shapes(_attention(block)))


class SeparateAttention(nn.Module):
    """torch's self-attention with its packed projection written out as three linear maps."""

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
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
    ) -> tuple[Tensor, None]:
        """As torch's, batch first; the weights are never given back."""
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


def _attention(block: nn.Module) -> nn.Module:
    found = attention_of(block)
    assert found is not None
    return found[1]


def _shapes(attention: nn.Module) -> list[tuple[int, int]]:
    """Inputs and outputs of query, key and value."""
    if isinstance(attention, nn.MultiheadAttention):
        return [(attention.embed_dim, attention.embed_dim)] * 3
    maps = [getattr(attention, name) for name in projections_of(attention) or ()]
    return [(linear.in_features, linear.out_features) for linear in maps]


def _targets(towers: Towers) -> Iterator[tuple[str, str]]:
    """Weight and slot in the model as it is saved, and the linear map that stands for it in training."""
    names = {id(module): name for name, module in towers.model.named_modules()}
    for block in (*towers.image_blocks, *towers.text_blocks):
        found = attention_of(block)
        assert found is not None
        inside, attention = found
        name = f"{names[id(block)]}.{inside}"
        if isinstance(attention, nn.MultiheadAttention):
            if not attention.batch_first:
                raise ModelError("clip_lora needs attention that has the batch first, and this has it second")
            owner = block.get_submodule(inside.rpartition(".")[0])
            setattr(owner, inside.rpartition(".")[2], SeparateAttention(attention))
            for slot, projection in enumerate(("q_proj", "k_proj", "v_proj")):
                yield f"{name}.in_proj_weight|{slot}", f"{name}.{projection}"
        else:
            for projection in projections_of(attention) or ():
                yield f"{name}.{projection}.weight|0", f"{name}.{projection}"


def _inject(model: nn.Module, targets: list[str], method: CLIPLoRA) -> None:
    """Let peft put its layers around these linear maps."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise ModelError("clip_lora needs peft: pip install 'prolip[lora]'") from error
    config = LoraConfig(
        r=method.rank,
        lora_alpha=method.alpha,
        lora_dropout=method.dropout,
        use_rslora=True,  # alpha / sqrt(r)
        target_modules=targets,
    )
    with torch.random.fork_rng([]):
        torch.manual_seed(method.seed)
        inject_adapter_in_model(config, model)
