"""From pictures to features: loading, views, the frozen tower, and the store that remembers."""

from prolip.features.extract import Extraction, extract
from prolip.features.images import BadImage, NoImageLeft, Pictures, load_image
from prolip.features.store import FeatureStore, Space

__all__ = [
    "BadImage",
    "Extraction",
    "FeatureStore",
    "NoImageLeft",
    "Pictures",
    "Space",
    "extract",
    "load_image",
]
