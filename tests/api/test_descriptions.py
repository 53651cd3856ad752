"""Sentences about classes: how they are read, what they do to class texts, where they go with a model."""

import json

import numpy as np
import pytest

from pictures import COLOURS, blotch
from prolip.api import FewShotClassifier
from prolip.api.model import Recipe
from prolip.api.support import ImageSource
from prolip.api.texts import PRIOR_IMAGES, weighted_rows
from prolip.core import InputError, UsageError
from prolip.core.arrays import unit_rows
from prolip.data.descriptions import as_descriptions, descriptions_of

SENTENCES = {
    "red": ["a picture in the colour of blood", "something like a ripe tomato"],
    "green": ["a picture in the colour of grass"],
    "blue": ["a picture in the colour of the sky", "the deep sea", "a clear day"],
}


@pytest.fixture
def pictures():
    images = [blotch(colour, 10 * k + i) for k, colour in enumerate(COLOURS.values()) for i in range(3)]
    return images, [name for name in COLOURS for _ in range(3)]


def test_json_csv_and_tsv_say_the_same(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({**SENTENCES, "green": SENTENCES["green"][0]}))
    lines = [f'{name},"{sentence}"' for name, own in SENTENCES.items() for sentence in own]
    (tmp_path / "b.csv").write_text("class,description\n" + "\n".join(lines) + "\n")
    (tmp_path / "c.tsv").write_text("\n".join("\t".join([name, *own]) for name, own in SENTENCES.items()))
    expected = {name: tuple(own) for name, own in SENTENCES.items()}
    assert as_descriptions(SENTENCES) == expected
    for file in ("a.json", "b.csv", "c.tsv"):
        assert as_descriptions(tmp_path / file) == expected


def test_names_are_told_apart_as_classes_are():
    found = as_descriptions({"Maine_Coon": "a large cat", "maine coon": ["a large cat", "a  furry cat"]})
    assert descriptions_of(found, "MAINE COON") == ("a large cat", "a furry cat")
    assert descriptions_of(found, "sphynx") == ()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "[1]", "sentences by class"),
        ("a.json", '{"red": []}', "'red' has no description"),
        ("a.json", '{"red": [3]}', "has 3 instead"),
        ("a.json", '{"red": ["  "]}', "instead of a sentence"),
        ("a.json", "{", "not JSON"),
        ("a.csv", "red\n", "'red' has no description"),
        ("a.txt", "red", "a .json, .csv or .tsv file"),
    ],
)
def test_a_file_that_says_nothing_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises((InputError, UsageError), match=message):
        as_descriptions(tmp_path / name)


def test_weights_are_equal_without_images_and_follow_them_with_many():
    rng = np.random.default_rng(0)
    prompts = [unit_rows(rng.normal(size=(3, 5))), unit_rows(rng.normal(size=(2, 5)))]
    near = unit_rows(prompts[0][1] + 0.05 * rng.normal(size=(20, 5)))
    far = unit_rows(rng.normal(size=(20, 5)))
    images, y = np.concatenate([near, far]), np.repeat([0, 1], 20)
    no_images = weighted_rows(prompts, np.zeros((0, 5)), np.zeros(0, int), 10.0)
    for row, own in zip(no_images, prompts, strict=True):
        np.testing.assert_allclose(row, own.mean(axis=0) / np.linalg.norm(own.mean(axis=0)), atol=1e-12)
    found = weighted_rows(prompts, images, y, 10.0)
    gains = [np.mean([p @ v for v in near]) - np.mean([p @ v for v in images]) for p in prompts[0]]
    fitting = np.exp(10 * np.array(gains)) / np.exp(10 * np.array(gains)).sum()
    weights = PRIOR_IMAGES / (20 + PRIOR_IMAGES) / 3 + 20 / (20 + PRIOR_IMAGES) * fitting
    expected = sum(w * p for w, p in zip(weights, prompts[0], strict=True))
    np.testing.assert_allclose(found[0], expected / np.linalg.norm(expected), atol=1e-12)
    assert found[0] @ prompts[0][1] > no_images[0] @ prompts[0][1]


def test_the_texts_of_a_fit_are_its_templates_and_descriptions(offline, pictures):
    clf = FewShotClassifier(offline, "zero_shot", store=False, descriptions=SENTENCES).fit(*pictures)
    x = clf.features(pictures[0]).features[0]
    v = unit_rows(offline.head(x))
    assert clf.classes_.tolist() == ["blue", "green", "red"]
    for k, name in enumerate(clf.classes_):
        prompts = [f"a photo of a {name}.", *SENTENCES[name]]
        embeddings = unit_rows(offline.text_head(offline.encode_text(prompts)))
        own = v[np.array(pictures[1]) == name]
        gain = offline.scale * embeddings @ (own.mean(axis=0) - v.mean(axis=0))
        share = 3 / (3 + PRIOR_IMAGES)
        weights = (1 - share) / len(prompts) + share * np.exp(gain) / np.exp(gain).sum()
        np.testing.assert_allclose(clf.model_.text.rows[k], unit_rows(weights @ embeddings), atol=1e-5)
    plain = FewShotClassifier(offline, "zero_shot", store=False).fit(*pictures)
    assert np.abs(clf.decision_function(pictures[0]) - plain.decision_function(pictures[0])).max() > 1e-3


def test_descriptions_go_with_a_model_and_are_used_again(offline, pictures, tmp_path, monkeypatch):
    monkeypatch.setattr("prolip.encoders.load", lambda *_: offline)
    every = {**SENTENCES, "grey": ["a picture in the colour of ash"]}
    clf = FewShotClassifier(offline, "prolip", lam=0.3, store=False, descriptions=every).fit(*pictures)
    clf.save(tmp_path / "model", card=True)
    again = FewShotClassifier.load(tmp_path / "model", store=False)
    assert again.model_.recipe == clf.model_.recipe
    np.testing.assert_allclose(again.model_.text.rows, clf.model_.text.rows, rtol=1e-12)
    assert "Descriptions" in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    again.add(names=["grey"])
    np.testing.assert_allclose(again.model_.text.rows[:3], clf.model_.text.rows, atol=1e-6)
    recipe = Recipe(descriptions=as_descriptions(every))
    np.testing.assert_allclose(
        again.model_.text.rows[3], ImageSource(offline).text(recipe, ["grey"]).rows[0], atol=1e-6
    )
    again.add([blotch((120, 120, 120), 90 + i) for i in range(3)], ["grey"] * 3)
    x = again.model_.support.task.x[0]
    expected = ImageSource(offline).text(recipe, again.classes_, x, again.model_.support.task.y)
    np.testing.assert_allclose(again.model_.text.rows, expected.rows, atol=1e-6)


def test_what_descriptions_cannot_reach_is_refused(offline, pictures):
    for method in ("prolip_text", "coop", "full"):
        with pytest.raises(UsageError):
            FewShotClassifier(offline, method, store=False, descriptions=SENTENCES).fit(*pictures)
    with pytest.raises(UsageError):
        FewShotClassifier(offline, store=False, descriptions={"cat": "a cat"}).fit(*pictures)


def test_classes_without_a_description_are_warned_of(offline, pictures):
    clf = FewShotClassifier(offline, "zero_shot", store=False, descriptions={"red": "blood"})
    with pytest.warns(UserWarning, match=r"2 of 3 classes have no description \('blue', 'green'\)"):
        clf.fit(*pictures)


def test_the_option_of_the_command(prolip, photos, tmp_path):
    (tmp_path / "colours.json").write_text(json.dumps(SENTENCES))
    arguments = ("fit", photos, "-o", tmp_path / "model", "--method", "zero_shot", "--json")
    code, _, err = prolip(*arguments, "--descriptions", tmp_path / "colours.json")
    assert code == 0, err
    saved = json.loads((tmp_path / "model" / "prolip.json").read_text())
    assert saved["recipe"]["descriptions"] == SENTENCES
    code, _, err = prolip(*arguments, "--force", "--descriptions", tmp_path / "none.json")
    assert code == 1
    assert "none.json" in err
