"""What prompt tuning methods share: prompts with learned words, how these are trained, and the fitted model.

    logits = s normalize(head(x)) T(context)'

The prompt of a class is `[slot] [slot] ... class name.`; learned word embeddings, the context, fill the
slots. A context that all classes share stays open-class: it works with other class names, if the encoder is
available to read them.

A slot is written as a letter that is not a token of any class name, so that slots are found again by the
letter's token id, whatever the tokenizer. All other embeddings (start, class name, full stop, end) are the
tower's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from prolip.core import InputError, Task, UsageError
from prolip.encoders import Encoder
from prolip.encoders.trainable_towers import Tokens, Towers
from prolip.methods.base import OptionError
from prolip.research.towers.tower_method import TowerMethod
from prolip.solvers.adam import Steps, dassl_steps

if TYPE_CHECKING:
    from torch import Tensor

_LETTERS = "xqzjkwv"
_MAX_PHRASE_TOKENS = 32


@dataclass(frozen=True)
class PromptTuning(TowerMethod):
    """Training by SGD with momentum: an epoch of warm-up, then a cosine that falls once an epoch.

    Parameters
    ----------
    lr, batch_size, weight_decay
        Learning rate, batch size and weight decay of SGD.
    view_area
        None: train on the views that were encoded already. A number in (0, 1]: train on a new random crop of
        each image in each epoch, with at least this share of its area; the authors' programs have 0.08.
    epochs
        None: by the number of shots, as CoOp's authors do.
    seed
        Random seed for the first words and for batches.
    """

    lr: float = 0.002
    epochs: int | None = None
    batch_size: int = 32
    weight_decay: float = 5e-4
    view_area: float | None = None
    seed: int = 0

    open_class: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.view_area is not None and not 0 < self.view_area <= 1:
            raise OptionError("view_area", "None or a number in (0, 1]", self.view_area)

    def steps(self, task: Task) -> Steps:
        """Return Dassl's steps, and the number of epochs that CoOp's authors use for so many shots."""
        by_shots = 50 if task.shots < 2 else 100 if task.shots <= 4 else 200
        epochs = by_shots if self.epochs is None else self.epochs
        return dassl_steps(self.lr, epochs, self.batch_size, self.seed, decay=self.weight_decay)


@dataclass(frozen=True)
class Layout:
    """The layout of a prompt: a number of slots, fixed words, and the class name."""

    contexts: int
    fixed: str = ""

    def prompts(self, encoder: Encoder, names: Sequence[str], towers: Towers | None = None) -> Prompts:
        """Build the prompts of these classes, for the encoder's own towers unless others are given."""
        import torch

        towers = encoder.towers() if towers is None else towers
        assert towers.words is not None
        letter, number = _free_letter(encoder, [*names, self.fixed])
        slots = " ".join([letter] * self.contexts)
        tokens = encoder.tokens([_prompt(slots, self.fixed, name) for name in names])
        ids = tokens["input_ids"]
        found = ids == number
        if self.contexts and not bool((found.sum(dim=1) == self.contexts).all()):
            name = names[int((found.sum(dim=1) != self.contexts).nonzero()[0])]
            raise InputError(
                f"{self.contexts} context words and the class {name!r} do not fit into the {ids.shape[1]} "
                f"tokens that the text tower of {encoder.name} reads: use fewer"
            )
        places = found.nonzero()[:, 1].reshape(len(names), self.contexts)
        with torch.no_grad():
            words = towers.words(ids)
        return Prompts(towers, tokens, places, words)


@dataclass(frozen=True, eq=False)
class Prompts:
    """The prompts of K classes, with M slots each."""

    towers: Towers
    tokens: Tokens  # of K prompts [K, L]
    slots: Tensor  # positions of the slots, [K, M]
    words: Tensor  # embeddings [K, L, De], frozen; the values at the slots are not used

    def embed(self, context: Tensor, unit: bool = True) -> Tensor:
        """Return text rows of context words: [M, De] gives [K, D], and [B, 1, M, De] gives [B, K, D].

        The rows have unit length, unless `unit` is False.
        """
        from torch.nn.functional import normalize

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
            rows = self.towers.embed_text(tokens).float()
        rows = normalize(rows, dim=-1) if unit else rows
        return rows.unflatten(0, (copies, classes)) if many else rows


def phrase_embedding(encoder: Encoder, towers: Towers, phrase: str, name: str) -> Tensor:
    """Return word embeddings [m, De] of a phrase in front of a class name."""
    import torch

    assert towers.words is not None
    letter, number = _free_letter(encoder, [name, phrase])
    written = encoder.tokens([_prompt(phrase, name)])["input_ids"][0]
    for m in range(1, _MAX_PHRASE_TOKENS + 1):
        ids = encoder.tokens([_prompt(" ".join([letter] * m), name)])["input_ids"][0]
        if len(ids) == len(written) and torch.equal(ids[ids != number], written[ids != number]):
            with torch.no_grad():
                words: Tensor = towers.words(written[ids == number])
                return words
    raise UsageError(f"the tokens of the phrase {phrase!r} depend on the class name after it: use another")


def start_context(
    encoder: Encoder, towers: Towers, name: str, slots: int | None, init: str, seed: int
) -> tuple[Tensor, str]:
    """Return context words [M, De] to start from: N(0, 0.02), or a phrase, padded in front with zeros.

    The second value are words of the phrase that are not learned. The authors' programs learn as many tokens
    as a phrase has words; a comma is a token but not a word, and the last words are left out for it.
    """
    import torch

    assert towers.words is not None
    width = towers.words.embedding_dim
    if init == "random":
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(16 if slots is None else slots, width, generator=generator)
        return (0.02 * noise).to(towers.words.weight.device), ""
    phrase, words, commas = phrase_embedding(encoder, towers, init, name), init.split(), init.count(",")
    fixed = words[len(words) - commas :] if len(phrase) == len(words) + commas else []
    phrase = phrase[: len(phrase) - len(fixed)]
    missing = 0 if slots is None else slots - len(phrase)
    if missing < 0:
        raise UsageError(f"the phrase {init!r} has {len(phrase)} tokens, more than contexts={slots}")
    return torch.cat([phrase.new_zeros(missing, width), phrase]), " ".join(fixed)


def _prompt(*parts: str) -> str:
    return " ".join(part for part in parts if part) + "."


def _free_letter(encoder: Encoder, names: Sequence[str]) -> tuple[str, int]:
    """Find a letter that is one token, and not a token of any name; return it with its token id."""
    used = set(encoder.tokens([f"{name}." for name in names])["input_ids"].flatten().tolist())
    for letter in _LETTERS:
        alone, empty = encoder.tokens([letter, ""])["input_ids"].tolist()
        numbers = set(alone) - set(empty)
        if len(numbers) == 1 and not numbers & used:
            return letter, numbers.pop()
    raise UsageError(
        f"every letter of {_LETTERS!r} is a token of a class name: {encoder.name} has no slot left"
    )
