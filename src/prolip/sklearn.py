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

from prolip.core import Head, InputError, Task, Text
from prolip.core.arrays import softmax
from prolip.evaluate.comparison import Candidate
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
        Class rows [K, D], or a `prolip.Text`, in the order of the sorted labels; None takes class means.
    head
        The encoder's last linear map: a matrix [Do, D] or a `prolip.Head`. None means that X are embeddings.
    method
        A name of `prolip.methods.names()` that works on features.
    options
        Options of the method, like {"lam": "1/N"} for "prolip".
    scale
        What cosines are multiplied by: that of the model, 100 for CLIP.
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
        options: dict[str, Any] | None = None,
        scale: float = 100.0,
        seed: int = 0,
    ) -> None:
        self.text = text
        self.head = head
        self.method = method
        self.options = options
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
            text = Text(np.stack([x[labels == k].mean(axis=0) for k in range(len(self.classes_))]))
        else:
            x = X
            text = self.text if isinstance(self.text, Text) else Text(np.asarray(self.text, np.float64))
            if len(text) != len(self.classes_):
                raise InputError(f"{len(text)} text rows for {len(self.classes_)} classes in y")
            if self.head is not None:
                head = self.head if isinstance(self.head, Head) else Head(np.asarray(self.head, np.float64))
        method = Candidate(self.method, self.options or {}).create(self.seed)
        self.fitted_ = method.fit(Task(x, labels, text, head, self.scale))
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Logits [n, K]; of two classes [n], the second's minus the first's."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities [n, K]."""
        return softmax(self._logits(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable labels [n]."""
        best = self._logits(X).argmax(axis=1)
        labels: np.ndarray = self.classes_[best]
        return labels

    def _logits(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return self.fitted_.logits(self._directions(X) if self.text is None else X)

    def _directions(self, X: np.ndarray) -> np.ndarray:
        """Unit rows of standardised columns and a constant."""
        x = np.column_stack([(X - self.mean_) / self.deviation_, np.ones(len(X))])
        rows: np.ndarray = x / np.linalg.norm(x, axis=1, keepdims=True)
        return rows
