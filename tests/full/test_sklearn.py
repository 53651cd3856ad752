"""The estimator on features, among scikit-learn's own tools."""

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402
from sklearn.utils.validation import check_is_fitted  # noqa: E402

from prolip import FewShotClassifier, methods  # noqa: E402
from prolip.core import Head, InputError, Task, Text, UsageError  # noqa: E402
from prolip.sklearn import ProLIPClassifier  # noqa: E402


def test_scikit_learns_own_checks():
    found = check_estimator(
        ProLIPClassifier(method="prolip", options={"lam": "1/N"}), on_fail=None, on_skip=None
    )
    assert [check["check_name"] for check in found if check["status"] == "failed"] == []
    assert sum(check["status"] == "passed" for check in found) > 40


def test_pipelines_grid_searches_and_cross_validation():
    X, y = load_digits(return_X_y=True)
    X, y = X[:200], y[:200]
    search = GridSearchCV(
        make_pipeline(StandardScaler(), ProLIPClassifier(method="prolip", options={"lam": 0.1})),
        {"prolipclassifier__options": [{"lam": 0.1}, {"lam": 0.01}]},
        cv=2,
    ).fit(X, y)
    assert search.best_score_ > 0.8
    assert cross_val_score(ProLIPClassifier(method="prolip", options={"lam": 0.01}), X, y, cv=2).mean() > 0.8


def test_a_classifier_of_images_among_scikit_learns_tools():
    y = np.repeat([0, 1], 4)
    images = [np.full((8, 8, 3), 200 * label + 5 * i, np.uint8) for i, label in enumerate(y)]
    clf = FewShotClassifier("offline", "prolip", store=False)
    with pytest.raises(NotFittedError):
        check_is_fitted(clf)
    check_is_fitted(clf.fit(images, y))
    assert not hasattr(clone(clf), "model_")
    search = GridSearchCV(FewShotClassifier("offline", "prolip", store=False), {"seed": [0, 1]}, cv=2)
    assert search.fit(images, y).best_score_ == 1.0
    assert search.decision_function(images).shape == (8, 2)
    assert cross_val_predict(search.best_estimator_, images, y, cv=2).tolist() == y.tolist()


def test_with_texts_it_is_the_method_itself():
    rng = np.random.default_rng(0)
    x, weight, text = rng.normal(size=(12, 6)), rng.normal(size=(6, 4)), rng.normal(size=(3, 4))
    names = np.array(["dog", "cat", "owl"])[np.arange(12) % 3]
    labels = [["cat", "dog", "owl"].index(name) for name in names]
    task = Task(x, labels, text, Head(weight))
    for rows in (text, Text(text, ("cat", "dog", "owl"))):
        clf = ProLIPClassifier(rows, Head(weight), "prolip", {"lam": 0.01}).fit(x, names)
        assert clf.classes_.tolist() == ["cat", "dog", "owl"]
        fitted = methods.create("prolip", lam=0.01).fit(task)
        np.testing.assert_allclose(clf.predict_proba(x), fitted.proba(x), atol=1e-6)
        np.testing.assert_allclose(clf.decision_function(x), fitted.logits(x), atol=1e-4)


def test_the_decision_between_two_classes():
    x, y = np.random.default_rng(0).normal(size=(8, 4)), np.repeat(["no", "yes"], 4)
    clf = ProLIPClassifier().fit(x, y)
    np.testing.assert_array_equal(clf.predict(x) == "yes", clf.decision_function(x) > 0)


def test_what_does_not_fit_together_is_refused():
    x, y = np.random.default_rng(0).normal(size=(6, 4)), [0, 0, 0, 1, 1, 1]
    with pytest.raises(InputError, match="3 text rows for 2 classes"):
        ProLIPClassifier(np.eye(4)[:3]).fit(x, y)
    with pytest.raises(InputError, match="head needs text"):
        ProLIPClassifier(head=np.eye(4)).fit(x, y)
    for wrong in ({"method": "gda", "options": {"lam": 1.0}}, {"options": {"no": 1}}):
        with pytest.raises(UsageError):
            ProLIPClassifier(**wrong).fit(x, y)
