"""Prompts with slots: `[slot] [slot] ... class name.`, whatever the tokenizer.

A slot is written as a letter that no class name contains as a token, so that its places are found again by
its number. The embeddings of everything else (start, class name, full stop, end) are the tower's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from prolip.core import InputError, UsageError
from prolip.encoders import Encoder
from prolip.encoders.trainable_towers import Tokens, Towers

_LETTERS = "xqzjkwv"
_LONGEST_PHRASE = 32  # tokens


@dataclass(frozen=True, eq=False)
class Prompts:
    """The prompts of K classes, with M slots each."""

    towers: Towers
    tokens: Tokens  # of K prompts [K, L]
    slots: Tensor  # where the slots are, [K, M]
    words: Tensor  # embeddings [K, L, De], frozen; what they hold at the slots does not matter

    @classmethod
    def build(
        cls,
        encoder: Encoder,
        towers: Towers,
        names: Sequence[str],
        slots: int,
        position: str,
        fixed: str = "",
    ) -> Prompts:
        """Prompts for these class names; `fixed` words stand between slots and name."""
        assert towers.words is not None
        letter, number = _free_letter(encoder, [*names, fixed])
        ids_of = encoder.tokens([_layout([letter] * slots, f"{fixed} {n}".strip(), position) for n in names])
        ids = ids_of["input_ids"]
        found = ids == number
        if slots and not bool((found.sum(dim=1) == slots).all()):
            name = names[int((found.sum(dim=1) != slots).nonzero()[0])]
            raise InputError(
                f"{slots} context words and the class {name!r} do not fit into the {ids.shape[1]} tokens "
                f"that the text tower of {encoder.name} reads: use fewer"
            )
        places = found.nonzero()[:, 1].reshape(len(names), slots)
        with torch.no_grad():
            words = towers.words(ids)
        return cls(towers, ids_of, places, words)

    def embed(self, context: Tensor) -> Tensor:
        """Unit text rows of context words: [M, De] for all classes or [K, M, De] gives [K, D].

        [B, 1, M, De] or [B, K, M, De] gives [B, K, D].
        """
        classes, slots = self.slots.shape
        width = self.words.shape[2]
        many = context.ndim == 4
        full = context if many else context.expand(classes, slots, width)[None]
        full = full.expand(-1, classes, slots, width).to(self.words.dtype)
        copies = len(full)
        words = self.words.expand(copies, -1, -1, -1)
        index = self.slots[None, :, :, None].expand(copies, -1, -1, width)
        words = words.scatter(2, index, full).flatten(0, 1)  # [B K, L, De]
        tokens = {name: tensor.repeat(copies, 1) for name, tensor in self.tokens.items()}
        with self.towers.with_word_embeddings(words):
            rows = normalize(self.towers.embed_text(tokens).float(), dim=-1)
        return rows.unflatten(0, (copies, classes)) if many else rows


def phrase_embedding(encoder: Encoder, towers: Towers, phrase: str, name: str) -> Tensor:
    """Word embeddings [m, De] of a phrase in front of a class name."""
    assert towers.words is not None
    letter, number = _free_letter(encoder, [name, phrase])
    said = encoder.tokens([_layout([phrase], name, "end")])["input_ids"][0]
    for m in range(1, _LONGEST_PHRASE + 1):
        ids = encoder.tokens([_layout([letter] * m, name, "end")])["input_ids"][0]
        if len(ids) == len(said) and torch.equal(ids[ids != number], said[ids != number]):
            with torch.no_grad():
                return towers.words(said[ids == number])
    raise UsageError(f"the phrase {phrase!r} cannot be told apart from a class name behind it: take another")


def start_context(
    encoder: Encoder, towers: Towers, name: str, slots: int | None, init: str, seed: int
) -> Tensor:
    """Context words [M, De] to start from: N(0, 0.02), or a phrase, with zeros in front up to M words."""
    assert towers.words is not None
    width = towers.words.embedding_dim
    device = towers.words.weight.device
    if init == "random":
        noise = torch.randn(
            16 if slots is None else slots, width, generator=torch.Generator().manual_seed(seed)
        )
        return (0.02 * noise).to(device)
    phrase = phrase_embedding(encoder, towers, init, name)
    missing = 0 if slots is None else slots - len(phrase)
    if missing < 0:
        raise UsageError(f"the phrase {init!r} has {len(phrase)} tokens, more than contexts={slots}")
    return torch.cat([phrase.new_zeros(missing, width), phrase])


def _layout(words: list[str], name: str, position: str) -> str:
    before = {"end": len(words), "middle": len(words) // 2, "front": 0}[position]
    return " ".join([*words[:before], name, *words[before:]]) + "."


def _free_letter(encoder: Encoder, names: Sequence[str]) -> tuple[str, int]:
    """A letter that is one token, and none of any name; and its number."""
    used = set(encoder.tokens([f"{name}." for name in names])["input_ids"].flatten().tolist())
    for letter in _LETTERS:
        alone, empty = encoder.tokens([letter, ""])["input_ids"].tolist()
        numbers = set(alone) - set(empty)
        if len(numbers) == 1 and not numbers & used:
            return letter, numbers.pop()
    raise UsageError(f"no letter of {_LETTERS!r} is free to mark the context: {encoder.name} reads them all")
