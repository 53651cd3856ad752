"""From images to features: loading, views, the frozen tower and the feature store."""

from prolip.features.extract import Extraction, extract, none_readable
from prolip.features.images import ImageError, LazyImages, load_image
from prolip.features.store import FeatureStore, Space

__all__ = [
    "Extraction",
    "FeatureStore",
    "ImageError",
    "LazyImages",
    "Space",
    "extract",
    "load_image",
    "none_readable",
]
