"""Classes renamed, merged and removed."""

import json

import numpy as np
import pytest

from pictures import COLOURS, blotch
from prolip.api import FewShotClassifier
from prolip.api import save as keep
from prolip.api.classes import (
    merge_classes,
    remove_classes,
    rename_classes,
)
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
    before = model.logits(x)
    with pytest.raises(UsageError, match=r"'tractor' 'red'"):
        grown.add(names="red")
    grown.add(names="dog")
    assert grown.classes_.tolist() == ["blue", "green", "tractor", "dog"]
    np.testing.assert_allclose(grown.model_.logits(x)[:, :3], before, atol=1e-3)
    grown.add([blotch((0, 0, 250), 99)], ["blue"])
    np.testing.assert_allclose(grown.model_.text.rows[:3], model.text.rows, atol=1e-5)
    merged = merge_classes(model, ["blue", "green"], "cold")
    np.testing.assert_allclose(merged.text.rows[1], model.text.rows[2], atol=1e-5)
    gone = remove_classes(model, ["tractor"])
    assert gone.recipe.prompt_names == {}
    read = rename_classes(model, {"tractor": "lorry"}, retext=True)
    assert not np.allclose(read.text.rows[2], model.text.rows[2], atol=1e-2)


def test_names_may_be_exchanged(colour_model):
    swapped = rename_classes(colour_model.model_, {"red": "blue", "blue": "red"})
    assert swapped.classes == ("red", "green", "blue")


def test_retext_reads_the_new_name_and_fits_again(colour_model):
    model = colour_model.model_
    renamed = rename_classes(model, {"red": "the colour of blood"}, retext=True)
    own = [np.allclose(a, b, atol=1e-5) for a, b in zip(renamed.text.rows, model.text.rows, strict=True)]
    assert own == [True, True, False]
    assert renamed.classes[2] == "the colour of blood"
    assert probabilities(colour_model, renamed).argmax(axis=1).tolist() == [2, 2, 2, 1, 1, 1, 0, 0, 0]


def test_merged_classes_are_as_if_they_had_been_labelled_so(colour_model, offline):
    merged = merge_classes(colour_model.model_, ["green", "red"], "warm")
    images = [blotch(colour, 10 * k + i) for k, colour in enumerate(COLOURS.values()) for i in range(4)]
    labels = [{"red": "warm", "green": "warm"}.get(name, name) for name in COLOURS for _ in range(4)]
    fresh = FewShotClassifier(offline, "prolip", lam=0.3, store=False).fit(images, labels)
    assert merged.classes == tuple(fresh.classes_) == ("blue", "warm")
    assert np.allclose(probabilities(colour_model, merged), fresh.predict_proba(TEST), atol=1e-4)
    assert merged.report["images"] == 12


def test_merging_into_one_of_them_keeps_its_text(colour_model):
    model = colour_model.model_
    merged = merge_classes(model, ["blue", "green"], "green")
    assert merged.classes == ("green", "red")
    assert np.allclose(merged.text.rows, model.text.rows[1:])


def test_a_removed_class_is_gone_with_its_images(colour_model):
    model = remove_classes(colour_model.model_, ["green"])
    assert model.classes == ("blue", "red")
    assert (model.report["images"], len(model.support.hashes), model.support.task.n) == (8, 8, 8)
    answers = probabilities(colour_model, model).argmax(axis=1).tolist()
    assert answers[:3] + answers[6:] == [1, 1, 1, 0, 0, 0]
    assert len(model.confidence.out_of_distribution.means) == 2


def test_without_kept_features_an_open_model_is_asked_about_fewer_texts(colour_model, tmp_path):
    colour_model.save(tmp_path / "model", support=False)
    model = remove_classes(keep.load(tmp_path / "model"), ["green"])
    p = probabilities(colour_model, model)
    logits = colour_model.decision_function(TEST)[:, [0, 2]]
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert np.allclose(p, expected, atol=1e-4)
    with pytest.raises(UsageError):
        merge_classes(keep.load(tmp_path / "model"), ["green", "red"], "warm")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda m: rename_classes(m, {"rd": "x"}), UsageError),
        (lambda m: rename_classes(m, {"red": "blue"}), UsageError),
        (lambda m: rename_classes(m, {"red": "_"}), InputError),
        (lambda m: merge_classes(m, ["red", "blue", "green"], "all"), UsageError),
        (lambda m: merge_classes(m, ["red"], "x"), UsageError),
        (lambda m: merge_classes(m, ["red", "green"], "blue"), UsageError),
        (lambda m: remove_classes(m, ["red", "green"]), UsageError),
    ],
)
def test_what_cannot_be_changed_is_refused_and_changes_nothing(colour_model, change, error):
    before = colour_model.model_
    with pytest.raises(error):
        change(before)
    assert before.classes == ("blue", "green", "red")


def test_embeddings_are_merged_by_the_mean_of_their_rows():
    rng = np.random.default_rng(0)
    rows = np.eye(3, 8)
    x = rows.repeat(5, axis=0) + rng.normal(0, 0.1, (15, 8))
    clf = FewShotClassifier("arrays", "prolip", lam=0.1).fit(x, np.repeat([0, 1, 2], 5), text=rows)
    merged = merge_classes(clf.model_, ["0", "1"], "both")
    assert merged.classes == ("both", 2)
    assert np.allclose(merged.text.rows[0], (rows[0] + rows[1]) / np.sqrt(2), atol=1e-6)
    assert merged.probabilities(x).argmax(axis=1).tolist() == [0] * 10 + [1] * 5


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


def test_the_command(prolip, colour_model, tmp_path):
    colour_model.save(tmp_path / "m")
    code, out, err = prolip("classes", tmp_path / "m")
    assert code == 0, err
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["blue", "green", "red"]
    code, out, err = prolip(
        "classes", tmp_path / "m", "--rename", "red=crimson", "--merge", "blue, green=cold", "-o",
        tmp_path / "n", "--json",
    )  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["classes"] == ["cold", "crimson"]
    assert json.loads(out)["counts"] == [8, 4]
    assert FewShotClassifier.load(tmp_path / "m").classes_.tolist() == ["blue", "green", "red"]
    assert FewShotClassifier.load(tmp_path / "n").classes_.tolist() == ["cold", "crimson"]
    before = {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()}
    code, _, err = prolip("classes", tmp_path / "m", "--rename", "red=crimson", "--remove", "purple")
    assert code == 2
    assert "unknown class 'purple'" in err
    assert {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()} == before
    assert prolip("classes", tmp_path / "m", "--rename", "red")[0] == 2
    assert prolip("classes", tmp_path / "m", "--retext")[0] == 2
