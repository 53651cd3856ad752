"""scikit-learn's manners, without scikit-learn: parameters that can be read, set and cloned."""

from __future__ import annotations

import inspect
from typing import Any, Self

from prolip.core import UsageError
from prolip.encoders import Encoder


class Estimator:
    """A classifier whose constructor stores its arguments under their names, and whose fit sets `model_`."""

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
        fitted = f", {self._described()}" if hasattr(self, "model_") else ""
        return f"<{type(self).__name__}({', '.join(changed)}){fitted}>"

    def _described(self) -> str:
        """What was fitted, in a few words."""
        raise NotImplementedError
