"""From images to features: loading, views, the frozen tower and the feature store."""

from prolip.features.extract import Extraction, extract
from prolip.features.images import ImageError, load_image
from prolip.features.store import FeatureStore

__all__ = [
    "Extraction",
    "FeatureStore",
    "ImageError",
    "extract",
    "load_image",
]
