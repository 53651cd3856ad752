"""FewShotClassifier: from images to an adapted model, in scikit-learn's manner."""

from prolip.api.classifier import FewShotClassifier

__all__ = ["FewShotClassifier"]
