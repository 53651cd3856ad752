"""The names of ImageNet's 1,000 classes in label order, as used in zero-shot work on CLIP-like models."""

from functools import cache
from pathlib import Path


@cache
def imagenet_names() -> tuple[str, ...]:
    """Return 1,000 names; 'missile' and 'sunglasses' are two classes each."""
    return tuple(Path(__file__).with_name("imagenet_classes.txt").read_text(encoding="utf-8").splitlines())
