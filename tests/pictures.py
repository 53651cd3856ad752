"""Pictures that tests are made of."""

import numpy as np
from PIL import Image

COLOURS = {"red": (200, 40, 40), "green": (40, 180, 40), "blue": (40, 40, 200)}


def blotch(colour, seed, size=48):
    """A picture of mostly one colour, no two alike."""
    rng = np.random.default_rng(seed)
    pixels = np.array(colour) + rng.normal(0, 25, (size, size, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
