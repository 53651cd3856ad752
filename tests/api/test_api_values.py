"""What the command line can do, as methods of the classifier, and values that show themselves."""

import copy
import sys

import pytest

from pictures import COLOURS, blotch
from prolip import FewShotClassifier, UsageError
from prolip.api.check import NEAR_COPY, TRAIN_AND_TEST

NEW = {name: [blotch(c, 600 + 10 * k + i) for i in range(4)] for k, (name, c) in enumerate(COLOURS.items())}


@pytest.fixture
def clf(colour_model):
    return copy.copy(colour_model)


def test_a_report_has_figures_confusion_matrix_and_mistakes(clf):
    wrong = {**NEW, "red": [*NEW["red"], blotch(COLOURS["blue"], 999)]}
    report = clf.report(wrong)
    assert report.figures.accuracy == pytest.approx(12 / 13)
    assert report.confusion.tolist() == [[4, 0, 0], [0, 4, 0], [1, 0, 4]]
    (mistake,) = report.mistakes
    assert (mistake["image"], mistake["label"], mistake["predicted"]) == ("image 5", "red", "blue")
    assert report.rows()[2] == {"class": "red", "images": 5, "accuracy": 0.8, "confused_with": "blue"}
    assert "accuracy 0.923" in repr(report)
    assert "<td>red</td><td>5</td><td>0.8</td><td>blue</td>" in report._repr_html_()


def test_a_report_on_training_images_holds_them_out(clf):
    report = clf.report()
    assert report.held_out.all()
    assert report.figures.accuracy == clf.confidence_.figures.accuracy


@pytest.mark.parametrize("fitted", [True, False])
def test_a_check_finds_copies_with_a_model_or_without(clf, offline, fitted):
    if not fitted:
        clf = FewShotClassifier(offline, "prolip", options={"lam": 0.3}, store=False)
    train = {**NEW, "red": [*NEW["red"], NEW["red"][0]]}
    found = clf.check(train, test={"blue": [NEW["blue"][1]]})
    assert [(one.kind, found.labels[one.image]) for one in found.of_kind(NEAR_COPY)] == [("near-copy", "red")]
    assert [found.labels[one.image] for one in found.of_kind(TRAIN_AND_TEST)] == ["blue"]
    assert hasattr(clf, "model_") == fitted
    assert repr(found).startswith("Check(14 images of 3 classes: ")
    assert "1 near-copy" in repr(found)
    assert "<td>near-copy</td>" in found._repr_html_()


def test_values_are_shown_in_a_line(clf):
    curve = clf.learning_curve()
    comparison = FewShotClassifier(clf.model_.encoder, store=False).compare(NEW, candidates=["gda"])
    values = [curve, comparison, clf.confidence_, clf.features(NEW["red"]), clf.model_.support.task]
    for value in values:
        assert len(repr(value)) < 500, repr(value)
        assert "\n" not in repr(value)
        assert repr(value).startswith(type(value).__name__)
    assert [row["method"] for row in comparison.rows()] == [str(one.candidate) for one in comparison.scores]
    assert comparison._repr_html_().count("<tr>") == len(comparison.rows()) + 1


def test_an_evaluation_goes_into_the_model_card(clf, tmp_path):
    wrong = {**NEW, "red": [*NEW["red"], blotch(COLOURS["blue"], 999)]}
    report = clf.report(wrong)
    assert (report.per_class, report.counts) == ((1, 1, 0.8), (4, 4, 5))
    clf.export(tmp_path / "out", "onnx", evaluation=report)
    assert "| red | 80.0 % |" in (tmp_path / "out" / "README.md").read_text()


def test_names_in_a_table_are_escaped(clf):
    clf.rename({"red": "<script>"})
    assert "<script>" not in clf.report()._repr_html_()


def test_a_data_frame_needs_pandas(clf, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError):
        clf.report().to_frame()
