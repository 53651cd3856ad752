"""scikit-learn's manners, without scikit-learn: parameters that can be read, set and cloned, fitted parts."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from prolip.api.model import AdaptedModel
from prolip.core import Fitted, UsageError
from prolip.encoders import Encoder
from prolip.evaluate.confidence import Confidence

if TYPE_CHECKING:
    from typing import Self  # from Python 3.11 on


class Estimator:
    """A classifier whose constructor stores its arguments under their names, and whose fit sets `model_`."""

    model_: AdaptedModel

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's parameters."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Change parameters of the constructor, for the next fit."""
        for name, value in params.items():
            if name not in self.get_params():
                known = ", ".join(self.get_params())
                raise UsageError(f"{type(self).__name__} has no parameter {name!r}: it takes {known}")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            "classifier",
            TargetTags(required=False),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(two_d_array=False),
        )

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = [
            f"{name}={value.name if isinstance(value, Encoder) else value!r}"
            for name, value in self.get_params().items()
            if value is not defaults[name].default and value != defaults[name].default
        ]
        fitted = ""
        if hasattr(self, "model_"):
            fitted = f", fitted on {self.info_['images']} images of {len(self.classes_)} classes"
        return f"<{type(self).__name__}({', '.join(changed)}){fitted}>"

    # Parts of the model

    @property
    def classes_(self) -> list[Any]:
        """The labels, in the order of `predict_proba`'s columns."""
        return list(self._model().classes)

    @property
    def fitted_(self) -> Fitted:
        """The fitted method, on features."""
        return self._model().fitted

    @property
    def info_(self) -> dict[str, Any]:
        """Figures of the fit."""
        return self._model().report

    @property
    def confidence_(self) -> Confidence:
        """Temperature, outsiders, and figures on held-out support images."""
        return self._model().confidence

    @property
    def skipped_(self) -> list[tuple[str, str]]:
        """(image, reason) of every support image that could not be read."""
        return list(self._model().support.skipped)

    def _model(self) -> AdaptedModel:
        if not hasattr(self, "model_"):
            raise UsageError("this classifier is not fitted yet: call fit first, or load a saved one")
        return self.model_
