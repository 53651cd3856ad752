"""MaPLe's prompts as a module, and the hooks that insert them into the two towers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from prolip.encoders.trainable_towers import Towers
from prolip.research.towers.prompt_tuning import Prompts
from prolip.research.towers.training import seeded

Hook = Callable[[nn.Module, tuple[Any, ...]], tuple[Any, ...]]  # changes the input of a module


class Coupling(nn.Module):
    """Text prompts of each depth, and the maps from them to visual prompts."""

    def __init__(self, contexts: int, depth: int, words: int, width: int, shared: bool) -> None:
        super().__init__()
        self.prompts = nn.ParameterList(
            nn.Parameter(0.02 * torch.randn(contexts, words)) for _ in range(depth)
        )
        first, deep = nn.Linear(words, width), nn.Linear(words, width)
        copies = 0 if shared else depth - 1
        self.maps = nn.ModuleList([first, *(copy.deepcopy(deep) for _ in range(copies))])

    @classmethod
    def start(cls, phrase: Tensor, depth: int, towers: Towers, shared: bool, seed: int) -> Coupling:
        """Start from words [M, De] at the entry of the text tower; everything else is random."""
        norm: Any = next(m for m in towers.image_blocks[0].modules() if isinstance(m, nn.LayerNorm))
        width = int(norm.normalized_shape[0])  # of the image tower's tokens
        with seeded(seed):
            made = cls(len(phrase), depth, phrase.shape[1], width, shared)
        with torch.no_grad():
            made.prompts[0].copy_(phrase)
        return made

    def visual(self, depth: int) -> Tensor:
        """Return visual tokens [M, width] of a depth."""
        tokens: Tensor = self.maps[min(depth, len(self.maps) - 1)](self.prompts[depth])
        return tokens


def _hooked(hooks: Iterable[tuple[nn.Module, Hook]]) -> ExitStack:
    """Register the hooks; closing the stack removes them."""
    stack = ExitStack()
    for module, hook in hooks:
        stack.enter_context(module.register_forward_pre_hook(hook))
    return stack


def insert_prompts(towers: Towers, coupling: Coupling) -> ExitStack:
    """Append the visual prompts to the image tower's tokens; closing the stack removes them."""

    def fill(depth: int) -> Hook:
        def hook(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            tokens = args[0][:, : -len(coupling.prompts[0])] if depth else args[0]
            prompts = coupling.visual(depth).to(tokens.dtype).expand(tokens.shape[0], -1, -1)
            return (torch.cat([tokens, prompts], dim=1), *args[1:])

        return hook

    assert towers.class_token is not None
    entries = [towers.class_token, *towers.image_blocks[1 : len(coupling.prompts)]]
    return _hooked((module, fill(depth)) for depth, module in enumerate(entries))


def text_rows(prompts: Prompts, coupling: Coupling) -> Tensor:
    """Compute unit rows [K, D] of the deep text prompts: each of the first blocks has its own."""

    def fill(depth: int) -> Hook:
        def hook(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            hidden = args[0]  # [K, L, De]
            index = prompts.slots[:, :, None].expand(-1, -1, hidden.shape[2])
            words = coupling.prompts[depth].to(hidden.dtype).expand(len(hidden), -1, -1)
            return (hidden.scatter(1, index, words), *args[1:])

        return hook

    blocks = prompts.towers.text_blocks[1 : len(coupling.prompts)]
    with _hooked((block, fill(depth)) for depth, block in enumerate(blocks, start=1)):
        return prompts.embed(coupling.prompts[0])
