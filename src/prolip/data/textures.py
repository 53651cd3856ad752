"""Ten drawn kinds of texture: any number of different images, without a download.

A kind is a function of coordinates u, v [S, S] (turned, scaled, shifted and slightly bent at random, so that
no two images are aligned). It returns a pattern [S, S] in 0 .. 1, which is then coloured with two random
colours, lit unevenly, and given noise.
"""

import colorsys
from collections.abc import Callable

import numpy as np
from PIL import Image

from prolip.core.errors import InputError, check_name
from prolip.data.imageset import ImageSet

SPLITS = ("train", "test")

Pattern = Callable[[np.random.Generator, np.ndarray, np.ndarray], np.ndarray]


def draw_textures(per_class: int, seed: int = 0, split: str = "train") -> ImageSet:
    """Draw images of every kind, class after class, in memory; `split` is "train" or "test".

    The same seed gives the same images, no image is in both splits, and each has a random stream of its own:
    the first ten are the same whether ten or sixty are drawn.
    """
    check_name("split", split, SPLITS)
    if per_class < 1:
        raise InputError(f"per_class must be at least 1, got {per_class}")
    images = [
        draw(kind, np.random.default_rng([seed, SPLITS.index(split), label, number]))
        for label, kind in enumerate(TEXTURES)
        for number in range(per_class)
    ]
    labels = [label for label in range(len(TEXTURES)) for _ in range(per_class)]
    return ImageSet(images, labels, list(TEXTURES), "textures", split)


def draw(kind: str, rng: np.random.Generator, size: int = 128) -> Image.Image:
    """Draw one image [size, size] of a kind."""
    y, x = np.mgrid[:size, :size] / size - 0.5
    angle, periods, bend = rng.uniform(0, np.pi), rng.uniform(4, 9), rng.uniform(0, 0.06)
    x = x + bend * (_clouds(rng, size, 3) - 0.5)
    y = y + bend * (_clouds(rng, size, 3) - 0.5)
    u = periods * (np.cos(angle) * x - np.sin(angle) * y) + rng.uniform()
    v = periods * (np.sin(angle) * x + np.cos(angle) * y) + rng.uniform()
    pattern = TEXTURES[kind](rng, u, v)[..., None]  # [S, S, 1]
    dark = np.array(colorsys.hsv_to_rgb(rng.uniform(), rng.uniform(0.2, 0.9), rng.uniform(0.1, 0.45)))
    light = np.array(colorsys.hsv_to_rgb(rng.uniform(), rng.uniform(0.0, 0.7), rng.uniform(0.7, 1.0)))
    # Of these the pattern is light falling on something solid: their dark stays dark.
    if kind not in ("woven", "bubbly") and rng.uniform() < 0.3:
        dark, light = light, dark
    pixels = dark + (light - dark) * pattern  # [S, S, 3]
    pixels = pixels * (1 + 0.35 * (_clouds(rng, size, 2)[..., None] - 0.5))
    pixels = pixels + rng.normal(0, rng.uniform(0.01, 0.06), pixels.shape)
    return Image.fromarray((255 * pixels.clip(0, 1)).round().astype(np.uint8))


def _dotted(rng: np.random.Generator, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    # Every second row may be shifted by half a dot.
    u = u + rng.choice([0.0, 0.5]) * (np.floor(v) % 2)
    return _edge(rng.uniform(0.22, 0.38) - np.hypot(u % 1 - 0.5, v % 1 - 0.5), 0.05)


def _grid(rng: np.random.Generator, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    to_line = np.minimum(np.abs(u % 1 - 0.5), np.abs(v % 1 - 0.5))
    return _edge(rng.uniform(0.04, 0.1) - to_line, 0.03)


def _zigzagged(rng: np.random.Generator, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    triangle = np.abs((u * rng.uniform(0.6, 1.1)) % 1 - 0.5)
    return _edge(np.sin(2 * np.pi * (v + rng.uniform(1.2, 2.2) * triangle)) - rng.uniform(-0.3, 0.3))


def _woven(rng: np.random.Generator, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    # Threads cross; on every second crossing the other one is on top. A thread is round, made of fibres
    # that run along it, and darker where it dips under the next.
    over = (np.floor(u) + np.floor(v)) % 2 == 0
    across, along = np.where(over, v % 1, u % 1) - 0.5, np.where(over, u % 1, v % 1) - 0.5
    thread = np.sqrt((1 - (2.2 * across) ** 2).clip(0, 1)) * (1 - 2.2 * along**2)
    fibres = 0.85 + 0.15 * np.sin(2 * np.pi * 4 * across)
    weave: np.ndarray = thread * fibres * np.where(over, 1.0, rng.uniform(0.5, 1.0))
    return weave


def _cracked(rng: np.random.Generator, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    size = len(u)
    seeds = rng.uniform(-0.1, 1.1, (int(rng.integers(16, 40)), 2)) * size
    y, x = np.mgrid[:size, :size]
    # Cracks are ragged: the plane is bent before distances are taken.
    x = x + 9 * (_clouds(rng, size, 12) - 0.5)
    y = y + 9 * (_clouds(rng, size, 12) - 0.5)
    away = np.hypot(x[..., None] - seeds[:, 0], y[..., None] - seeds[:, 1])
    near = np.partition(away, 1, axis=2)
    gap = near[..., 1] - near[..., 0]
    shade = 0.75 + 0.25 * (seeds[away.argmin(axis=2), 0] * 7.3 % 1)
    cells: np.ndarray = _edge(gap - rng.uniform(1.5, 4.0), 1.0) * shade
    return cells


def _spiralled(rng: np.random.Generator, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    size = len(u)
    y, x = np.mgrid[:size, :size] / size - rng.uniform(0.2, 0.8, (2, 1, 1))
    radius = np.hypot(x, y * rng.uniform(0.5, 2.0))
    arms = int(rng.integers(1, 6)) * int(rng.choice([-1, 1]))
    phase = rng.uniform(3, 14) * radius ** rng.uniform(0.5, 1.1) + arms * np.arctan2(y, x) / (2 * np.pi)
    return _edge(np.sin(2 * np.pi * phase) - rng.uniform(-0.7, 0.7), rng.uniform(0.2, 1.2))


def _bubbly(rng: np.random.Generator, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    size = len(u)
    y, x = np.mgrid[:size, :size]
    pattern = np.full((size, size), 0.15)
    for radius in sorted(rng.uniform(0.03, 0.13, int(rng.integers(35, 70))) * size, reverse=True):
        cx, cy = rng.uniform(0, size, 2)
        inside = np.hypot(x - cx, y - cy) / radius
        glint = np.exp(-((x - cx + 0.35 * radius) ** 2 + (y - cy + 0.35 * radius) ** 2) / (0.06 * radius**2))
        ball = 0.3 + 0.45 * inside**3 + 0.7 * glint
        pattern = np.where(inside < 1, ball, pattern)
    return pattern.clip(0, 1)


def _blotchy(rng: np.random.Generator, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    size = len(u)
    height = _clouds(rng, size, int(rng.integers(4, 8))) + 0.4 * _clouds(rng, size, 14)
    return _edge(height - np.quantile(height, rng.uniform(0.35, 0.65)), rng.uniform(0.05, 0.15))


TEXTURES: dict[str, Pattern] = {
    "striped": lambda rng, u, v: _edge(np.sin(2 * np.pi * u) - rng.uniform(-0.5, 0.5)),
    "dotted": _dotted,
    "chequered": lambda rng, u, v: _edge(np.sin(np.pi * u) * np.sin(np.pi * v), 0.08),
    "grid": _grid,
    "zigzagged": _zigzagged,
    "woven": _woven,
    "cracked": _cracked,
    "spiralled": _spiralled,
    "bubbly": _bubbly,
    "blotchy": _blotchy,
}


def _clouds(rng: np.random.Generator, size: int, cells: int) -> np.ndarray:
    """Draw smooth noise [S, S] in 0 .. 1 with about `cells` bumps a side."""
    coarse = Image.fromarray(rng.uniform(size=(cells + 3, cells + 3)).astype(np.float32))
    return np.asarray(coarse.resize((size, size), Image.Resampling.BICUBIC), dtype=np.float64).clip(0, 1)


def _edge(signed: np.ndarray, softness: float = 0.2) -> np.ndarray:
    """Return 0 where `signed` is negative, 1 where positive, without jagged edges."""
    return 0.5 + 0.5 * np.tanh(signed / softness)
