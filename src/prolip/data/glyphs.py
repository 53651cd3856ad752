"""Drawn digits as on signs and labels: any number of different images, without a download.

A digit of Pillow's own font is drawn, thick or thin, then turned, slanted, stretched and moved at random,
painted in one colour on a shaded ground of another, perhaps scratched, blurred and roughened.
"""

import colorsys

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

GLYPHS = "0123456789"

_FONT_SIZE = 96


def draw(glyph: str, rng: np.random.Generator, size: int = 128) -> Image.Image:
    """Draw one image [size, size] of a glyph."""
    shape = _transform(_stroke(glyph, rng, 2 * size), rng, size)  # [S, S] in 0 .. 1
    ground, ink = _two_colours(rng)
    colours = ground * _shade(rng, size) + (ink - ground) * shape[..., None]  # [S, S, 3]
    image = Image.fromarray((255 * colours.clip(0, 1)).astype(np.uint8))
    _scratch(image, rng)
    image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.5)))
    noisy = np.asarray(image) + rng.normal(0, rng.uniform(2, 12), (size, size, 3))
    return Image.fromarray(noisy.clip(0, 255).round().astype(np.uint8))


def _stroke(glyph: str, rng: np.random.Generator, size: int) -> Image.Image:
    """Draw the glyph in the middle of a grey image, thin or thick."""
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
    """Draw thin lines across the image."""
    pen = ImageDraw.Draw(image)
    for _ in range(int(rng.integers(0, 3))):
        ends, colour = rng.uniform(0, image.width, 4), tuple(rng.integers(0, 256, 3).tolist())
        pen.line(ends.tolist(), colour, int(rng.integers(1, 4)))


def _shade(rng: np.random.Generator, size: int) -> np.ndarray:
    """Return light from one side, [S, S, 1] around 1."""
    y, x = np.mgrid[:size, :size] / size - 0.5
    angle = rng.uniform(0, 2 * np.pi)
    return 1 + (rng.uniform(0, 0.6) * (np.cos(angle) * x + np.sin(angle) * y))[..., None]


def _two_colours(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw a light and a dark colour, in either order."""
    dark = colorsys.hsv_to_rgb(rng.uniform(), rng.uniform(0, 1), rng.uniform(0, 0.4))
    light = colorsys.hsv_to_rgb(rng.uniform(), rng.uniform(0, 0.6), rng.uniform(0.75, 1))
    pair = np.array(dark), np.array(light)
    return pair if rng.random() < 0.5 else pair[::-1]
