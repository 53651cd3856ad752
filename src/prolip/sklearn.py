"""ProLIP as a scikit-learn classifier on features, for pipelines, grid searches and cross-validation.

With class texts this is ProLIP itself: X are features of images before the projection, `head` the projection,
`text` the class rows; without a head X are embeddings, and the method is RLA.

Without texts, the class rows are computed from the data: columns are standardised to zero mean and unit
deviation, a constant column is added as a bias, and the fixed row of a class is the direction of its mean.
The matrix in between is fitted, starting from the identity: a tuned nearest-mean classifier.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from prolip import methods
from prolip.core import Head, InputError, Task, Text
from prolip.io.environment import require

require("sklearn", "sklearn")  # a missing extra is an error of one line

from sklearn.base import BaseEstimator, ClassifierMixin  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402
from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: E402


class ProLIPClassifier(ClassifierMixin, BaseEstimator):
    """Tune a projection between features and class rows.

    Parameters
    ----------
    text
        Class rows [K, D], in the order of the sorted labels; None takes class means.
    head
        The encoder's last linear map: a matrix [Do, D] or a `prolip.Head`. None means that X are embeddings.
    method
        A name of `prolip.methods.names()` that works on features.
    lam
        Weight of the penalty of a method that has one: for "prolip", "1/N", "1/N^2" or a number. None is the
        method's default.
    scale
        What cosines are multiplied by.
    seed
        Random seed for the folds that the method chooses on.

    Attributes
    ----------
    classes_
        Labels, sorted; columns of `predict_proba`.
    fitted_
        The fitted method.
    n_features_in_
        Columns of X.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import cross_val_score
    >>> X, y = load_digits(return_X_y=True)
    >>> bool(cross_val_score(ProLIPClassifier(), X[:300], y[:300], cv=3).mean() > 0.85)
    True
    """

    def __init__(
        self,
        text: Any = None,
        head: Any = None,
        method: str = "anchored",
        lam: str | float | None = None,
        scale: float = 20.0,
        seed: int = 0,
    ) -> None:
        self.text = text
        self.head = head
        self.method = method
        self.lam = lam
        self.scale = scale
        self.seed = seed

    def fit(self, X: Any, y: Any) -> ProLIPClassifier:
        """Fit on features [n, Do] and labels [n]."""
        # float64: scikit-learn expects the same result to the last digit, however rows are batched.
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError("a classifier needs samples of at least two classes, got one class")
        head = None
        if self.text is None:
            if self.head is not None:
                raise InputError("a head needs text rows to lead to: give text as well")
            self.mean_ = X.mean(axis=0)
            deviation = X.std(axis=0)
            self.deviation_ = np.where(deviation > 0, deviation, 1.0)
            x = self._directions(X)
            text = np.stack([x[labels == k].mean(axis=0) for k in range(len(self.classes_))])
        else:
            x, text = X, np.asarray(self.text, dtype=np.float64)
            if len(text) != len(self.classes_):
                raise InputError(f"{len(text)} text rows for {len(self.classes_)} classes in y")
            if self.head is not None:
                head = self.head if isinstance(self.head, Head) else Head(np.asarray(self.head, np.float64))
        options, takes = {"lam": self.lam, "seed": self.seed}, methods.options(self.method)
        taken = {name: value for name, value in options.items() if value is not None and name in takes}
        task = Task(x, labels, Text(text), head, self.scale)
        self.fitted_ = methods.create(self.method, **taken).fit(task)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities [n, K]."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        x = self._directions(X) if self.text is None else X
        return self.fitted_.proba(x)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable labels [n]."""
        best = self.predict_proba(X).argmax(axis=1)
        labels: np.ndarray = self.classes_[best]
        return labels

    def _directions(self, X: np.ndarray) -> np.ndarray:
        """Unit rows of standardised columns and a constant."""
        x = np.column_stack([(X - self.mean_) / self.deviation_, np.ones(len(X))])
        rows: np.ndarray = x / np.linalg.norm(x, axis=1, keepdims=True)
        return rows
