"""Classes listed and renamed."""

import numpy as np
import pytest

from pictures import COLOURS, blotch
from prolip import FewShotClassifier
from prolip.api import save as keep
from prolip.api.grow import rename_classes
from prolip.core import InputError, UsageError

TEST = [blotch(colour, 500 + i) for colour in COLOURS.values() for i in range(3)]


def probabilities(clf, model):
    return model.probabilities(clf.features(TEST).features[0])


def test_a_new_name_changes_no_answer_and_fits_nothing(colour_model, tmp_path, monkeypatch):
    def fails(*_, **__):
        raise AssertionError("fitted")

    monkeypatch.setattr("prolip.methods.prolip.ProLIP.fit", fails)
    monkeypatch.setattr("prolip.methods.prolip.ProLIP.fit_held_out", fails)
    model = colour_model.model_
    renamed = rename_classes(model, {"red": "crimson"})
    assert (model.classes, renamed.classes) == (("blue", "green", "red"), ("blue", "green", "crimson"))
    expected = probabilities(colour_model, model)
    assert np.allclose(probabilities(colour_model, renamed), expected, rtol=1e-5)
    assert renamed.fitted.text.classes == renamed.text.classes == renamed.support.task.text.classes
    keep.save(renamed, tmp_path / "model")
    loaded = FewShotClassifier.load(tmp_path / "model")
    assert loaded.classes_.tolist() == ["blue", "green", "crimson"]
    assert np.allclose(loaded.predict_proba(TEST), probabilities(colour_model, model), atol=1e-5)


def test_a_renamed_class_is_read_by_its_old_name_however_the_model_grows(colour_model, tmp_path):
    model = rename_classes(colour_model.model_, {"red": "tractor engine"})
    model = rename_classes(model, {"tractor engine": "tractor"})
    keep.save(model, tmp_path / "model")
    grown = FewShotClassifier.load(tmp_path / "model")
    x = model.support.task.x[0]
    before = model.fitted.logits(x)
    with pytest.raises(UsageError, match=r"'tractor' 'red'"):
        grown.add(names="red")
    grown.add(names="dog")
    assert grown.classes_.tolist() == ["blue", "green", "tractor", "dog"]
    np.testing.assert_allclose(grown.fitted_.logits(x)[:, :3], before, atol=0.02)
    grown.add([blotch((0, 0, 250), 99)], ["blue"])
    np.testing.assert_allclose(grown.model_.text.rows[:3], model.text.rows, atol=1e-5)


def test_names_may_be_exchanged(colour_model):
    swapped = rename_classes(colour_model.model_, {"red": "blue", "blue": "red"})
    assert swapped.classes == ("red", "green", "blue")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda m: rename_classes(m, {"rd": "x"}), UsageError),
        (lambda m: rename_classes(m, {"red": "blue"}), UsageError),
        (lambda m: rename_classes(m, {"red": "_"}), InputError),
    ],
)
def test_what_cannot_be_changed_is_refused_and_changes_nothing(colour_model, change, error):
    before = colour_model.model_
    with pytest.raises(error):
        change(before)
    assert before.classes == ("blue", "green", "red")


def test_the_command_leaves_what_is_not_its_own(prolip, colour_model, tmp_path, monkeypatch):
    saved = tmp_path / "m"
    colour_model.save(saved)
    (saved / "README.md").write_text("mine", encoding="utf-8")
    assert prolip("classes", saved, "--rename", "red=crimson")[0] == 0
    assert (saved / "README.md").read_text(encoding="utf-8") == "mine"

    def meanwhile(*arguments, **options):
        monkeypatch.undo()
        model = keep.load(*arguments, **options)
        other = FewShotClassifier.load(saved)
        other.add(names=["dog"])
        other.save(saved)
        return model

    monkeypatch.setattr(keep, "load", meanwhile)
    code, _, err = prolip("classes", saved, "--rename", "crimson=rot")
    assert code != 0, err
    assert FewShotClassifier.load(saved).classes_.tolist() == ["blue", "green", "crimson", "dog"]
