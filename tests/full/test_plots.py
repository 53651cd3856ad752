"""Values as plots and data frames, which need matplotlib and pandas."""

import pytest

from pictures import COLOURS, blotch
from prolip import FewShotClassifier

matplotlib = pytest.importorskip("matplotlib")
IMAGES = {
    name: [blotch(c, 600 + 10 * k + i) for i in range(4)] for k, (name, c) in enumerate(COLOURS.items())
}


def test_values_plot_themselves(colour_model, monkeypatch, tmp_path):
    monkeypatch.setenv("MPLBACKEND", "agg")
    from matplotlib import pyplot

    clf = FewShotClassifier(colour_model.model_.encoder, store=False)
    curve, report = colour_model.learning_curve(), colour_model.report(IMAGES)
    comparison = clf.compare(IMAGES, candidates=["gda"])
    axes = curve.plot()
    assert list(axes.lines[-1].get_xdata()) == [curve.now.shots] * 2  # the line of "now"
    _, given = pyplot.subplots()
    assert comparison.plot(given) is given
    assert [tick.get_text() for tick in given.get_yticklabels()] == ["gda", "anchored"]
    axes = report.plot()
    assert [text.get_text() for text in axes.texts] == ["4", "4", "4"]
    axes.figure.savefig(tmp_path / "matrix.png")
    pyplot.close("all")


def test_values_become_data_frames(colour_model):
    pytest.importorskip("pandas")
    frame = colour_model.report(IMAGES).to_frame()
    assert frame.columns.tolist() == ["class", "images", "accuracy", "confused_with"]
    assert frame["accuracy"].tolist() == [1.0, 1.0, 1.0]
    curve = colour_model.learning_curve()
    assert curve.to_frame()["shots"].tolist() == [row["shots"] for row in curve.rows()]
