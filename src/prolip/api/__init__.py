"""From images to an adapted model, and what is done with it."""

from prolip.api.classifier import FewShotClassifier
from prolip.api.model import AdaptedModel, Recipe

__all__ = ["AdaptedModel", "FewShotClassifier", "Recipe"]
