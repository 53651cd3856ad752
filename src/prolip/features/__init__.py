"""From images to features: loading, views, the frozen tower and the feature store."""

from prolip.features.extract import Extraction, extract
from prolip.features.images import ImageError, LazyImages, NoImagesError, load_image
from prolip.features.store import FeatureStore, Space

__all__ = [
    "Extraction",
    "FeatureStore",
    "ImageError",
    "LazyImages",
    "NoImagesError",
    "Space",
    "extract",
    "load_image",
]
