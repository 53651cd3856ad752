"""Small built-in sets: drawn textures and numbers, and handwritten digits.

A number is a digit of Pillow's own font, as on signs and labels: drawn thick or thin, then turned, slanted,
stretched and moved at random, painted in one colour on a shaded ground of another, perhaps scratched, blurred
and roughened.
"""

import colorsys
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from prolip.core.errors import InputError, check_name
from prolip.data import textures
from prolip.data.templates import templates_for
from prolip.io.environment import require

Split = Literal["train", "test"]

_SPLITS = ("train", "test")
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_DIGITS = [f"digit {number}" for number in _NUMBERS]
_DIGITS_FOR_TEST = 74  # of the 174 to 183 that each digit has
_FONT_SIZE = 96

# Classes and prompt templates by name.
BUILTIN: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "textures": (list(textures.TEXTURES), templates_for("dtd")),
    "numbers": (_DIGITS, ("a photo of the {}.",)),
    "digits": (_DIGITS, ("a photo of a handwritten {}.",)),
}


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
    classes, templates = BUILTIN[name]
    if name == "digits":
        images = _handwritten(per_class, seed, split)
    else:  # each has a random stream of its own: the first ten are the same whether ten or sixty are drawn
        images = [
            (textures.draw if name == "textures" else _draw_number)(
                kind, np.random.default_rng([seed, _SPLITS.index(split), label, number])
            )
            for label, kind in enumerate(textures.TEXTURES if name == "textures" else "0123456789")
            for number in range(per_class)
        ]
    labels = [label for label in range(len(classes)) for _ in range(per_class)]
    return BuiltinSet(name, images, labels, classes, templates)


def _handwritten(per_class: int, seed: int, split: Split) -> list[Image.Image]:
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
    return images


def _enlarge(digit: np.ndarray) -> Image.Image:
    """Enlarge 8 x 8 values in 0 .. 16 to a smooth image with a margin, white on black."""
    small = Image.fromarray(np.pad(digit * (255 / 16), 1).round().astype(np.uint8))
    return small.resize((112, 112), Image.Resampling.BICUBIC).convert("RGB")


def _draw_number(glyph: str, rng: np.random.Generator, size: int = 128) -> Image.Image:
    shape = _transform(_stroke(glyph, rng, 2 * size), rng, size)  # [S, S] in 0 .. 1
    ground, ink = _two_colours(rng)
    colours = ground * _shade(rng, size) + (ink - ground) * shape[..., None]  # [S, S, 3]
    image = Image.fromarray((255 * colours.clip(0, 1)).astype(np.uint8))
    _scratch(image, rng)
    image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.5)))
    noisy = np.asarray(image) + rng.normal(0, rng.uniform(2, 12), (size, size, 3))
    return Image.fromarray(noisy.clip(0, 255).round().astype(np.uint8))


def _stroke(glyph: str, rng: np.random.Generator, size: int) -> Image.Image:
    image = Image.new("L", (size, size))
    font, width = ImageFont.load_default(_FONT_SIZE), int(rng.integers(0, 7))
    ImageDraw.Draw(image).text((size / 2, size / 2), glyph, 255, font, anchor="mm", stroke_width=width)
    return image


def _transform(image: Image.Image, rng: np.random.Generator, size: int) -> np.ndarray:
    """Turn, slant, stretch and move an image; return its middle [S, S] in 0 .. 1."""
    angle, slant = np.deg2rad(rng.uniform(-15, 15)), rng.uniform(-0.25, 0.25)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    scale = rng.uniform(0.65, 1.1) * rng.uniform(0.85, 1.2, 2)  # below 1: larger
    matrix = turn @ np.array([[1, slant], [0, 1]]) * scale
    away = rng.uniform(-0.08, 0.08, 2) * size
    start = np.array(image.size) / 2 - matrix @ (np.full(2, size / 2) + away)
    where = (*matrix[0], start[0], *matrix[1], start[1])
    small = image.transform((size, size), Image.Transform.AFFINE, where, Image.Resampling.BILINEAR)
    return np.asarray(small, dtype=np.float64) / 255


def _scratch(image: Image.Image, rng: np.random.Generator) -> None:
    pen = ImageDraw.Draw(image)
    for _ in range(int(rng.integers(0, 3))):
        ends, colour = rng.uniform(0, image.width, 4), tuple(rng.integers(0, 256, 3).tolist())
        pen.line(ends.tolist(), colour, int(rng.integers(1, 4)))


def _shade(rng: np.random.Generator, size: int) -> np.ndarray:
    """Return light from one side, [S, S, 1] around 1."""
    y, x = np.mgrid[:size, :size] / size - 0.5
    angle = rng.uniform(0, 2 * np.pi)
    shade: np.ndarray = 1 + (rng.uniform(0, 0.6) * (np.cos(angle) * x + np.sin(angle) * y))[..., None]
    return shade


def _two_colours(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    dark = colorsys.hsv_to_rgb(rng.uniform(), rng.uniform(0, 1), rng.uniform(0, 0.4))
    light = colorsys.hsv_to_rgb(rng.uniform(), rng.uniform(0, 0.6), rng.uniform(0.75, 1))
    pair = np.array(dark), np.array(light)
    return pair if rng.random() < 0.5 else pair[::-1]
