"""Pictures that tests are made of."""

import numpy as np
from PIL import Image

COLOURS = {"red": (200, 40, 40), "green": (40, 180, 40), "blue": (40, 40, 200)}


def blotch(colour, seed, size=48):
    """A picture of mostly one colour with a few darker patches, no two alike."""
    rng = np.random.default_rng(seed)
    pixels = np.array(colour) + rng.normal(0, 25, (size, size, 3))
    for _ in range(3):
        (top, left), (height, width) = (
            rng.integers(0, size * 3 // 4, 2),
            rng.integers(size // 8, size // 2, 2),
        )
        pixels[top : top + height, left : left + width] *= rng.uniform(0.6, 1.0)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
