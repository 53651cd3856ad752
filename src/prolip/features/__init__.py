"""From images to features: loading, views, the frozen tower and the feature store."""

from prolip.features.extract import Extraction, extract
from prolip.features.images import BadImage, LazyImages, NoImageLeft, load_image
from prolip.features.store import FeatureStore, Space

__all__ = [
    "BadImage",
    "Extraction",
    "FeatureStore",
    "LazyImages",
    "NoImageLeft",
    "Space",
    "extract",
    "load_image",
]
