"""Small built-in sets: drawn textures and numbers, and handwritten digits."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image

from prolip.core.errors import InputError, check_name
from prolip.data import glyphs, textures
from prolip.data.templates import templates_for
from prolip.io.environment import require

Split = Literal["train", "test"]
Draw = Callable[[str, np.random.Generator], Image.Image]

_SPLITS = ("train", "test")
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_DIGITS = [f"digit {number}" for number in _NUMBERS]
_DIGITS_FOR_TEST = 74  # of the 174 to 183 that each digit has


@dataclass(frozen=True)
class BuiltinSet:
    """Images in memory, their labels, class names and prompt templates."""

    name: str
    images: list[Image.Image]
    labels: list[int]
    classes: list[str]
    templates: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.images)


def builtin(name: str, per_class: int, seed: int = 0, split: Split = "train") -> BuiltinSet:
    """Return images of a built-in set, class after class.

    Parameters
    ----------
    name
        "textures": ten drawn kinds. "numbers": ten printed digits, drawn. "digits": scikit-learn's 8 x 8
        handwritten digits, enlarged.
    per_class
        Images of each class. Digits have at most 100 for training and 74 for testing.
    seed
        Which images; the same seed gives the same ones.
    split
        "train" or "test": no image is in both.
    """
    check_name("built-in set", name, BUILTIN)
    check_name("split", split, _SPLITS)
    if per_class < 1:
        raise InputError(f"per_class must be at least 1, got {per_class}")
    return BUILTIN[name](per_class, seed, split)


def _digits(per_class: int, seed: int, split: Split) -> BuiltinSet:
    bunch = require("sklearn.datasets", "sklearn", "the set of digits", "scikit-learn").load_digits()
    images: list[Image.Image] = []
    for digit in range(10):
        pool = np.flatnonzero(bunch.target == digit)
        pool = pool[-_DIGITS_FOR_TEST:] if split == "test" else pool[:-_DIGITS_FOR_TEST]
        if per_class > len(pool):
            raise InputError(
                f"per_class is {per_class}, but digits have {len(pool)} images of each class for {split}"
            )
        chosen = np.random.default_rng([seed, digit]).permutation(pool)[:per_class]
        images += [_enlarge(bunch.images[i]) for i in chosen]
    return BuiltinSet("digits", images, _labels(10, per_class), _DIGITS, ("a photo of a handwritten {}.",))


def _enlarge(digit: np.ndarray) -> Image.Image:
    """Enlarge 8 x 8 values in 0 .. 16 to a smooth image with a margin, white on black."""
    small = Image.fromarray(np.pad(digit * (255 / 16), 1).round().astype(np.uint8))
    return small.resize((112, 112), Image.Resampling.BICUBIC).convert("RGB")


def _textures(per_class: int, seed: int, split: Split) -> BuiltinSet:
    images = _draw_all(textures.draw, textures.TEXTURES, per_class, seed, split)
    labels = _labels(len(textures.TEXTURES), per_class)
    return BuiltinSet("textures", images, labels, list(textures.TEXTURES), templates_for("dtd"))


def _numbers(per_class: int, seed: int, split: Split) -> BuiltinSet:
    images = _draw_all(glyphs.draw, glyphs.GLYPHS, per_class, seed, split)
    return BuiltinSet("numbers", images, _labels(10, per_class), _DIGITS, ("a photo of the {}.",))


def _draw_all(draw: Draw, kinds: Iterable[str], per_class: int, seed: int, split: Split) -> list[Image.Image]:
    """Draw images, class after class.

    Each has a random stream of its own: the first ten are the same whether ten or sixty are drawn.
    """
    return [
        draw(kind, np.random.default_rng([seed, _SPLITS.index(split), label, number]))
        for label, kind in enumerate(kinds)
        for number in range(per_class)
    ]


def _labels(classes: int, per_class: int) -> list[int]:
    return [label for label in range(classes) for _ in range(per_class)]


BUILTIN: dict[str, Callable[[int, int, Split], BuiltinSet]] = {
    "textures": _textures,
    "numbers": _numbers,
    "digits": _digits,
}
