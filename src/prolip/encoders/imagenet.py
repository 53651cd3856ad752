"""The names of ImageNet's 1,000 classes, in label order, as zero-shot work on CLIP-like models words them."""

from functools import cache
from pathlib import Path


@cache
def imagenet_names() -> tuple[str, ...]:
    """1,000 names; 'missile' and 'sunglasses' each stand for two classes."""
    return tuple(Path(__file__).with_name("imagenet_classes.txt").read_text(encoding="utf-8").splitlines())
