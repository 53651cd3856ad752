"""Pages about a model, without a browser: what is in them, and that names are text. See pages/ too."""

import base64
import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pictures import COLOURS, blotch
from prolip import FewShotClassifier
from prolip.api.evaluate import evaluate_images, evaluate_support
from prolip.api.inputs import read_labelled
from prolip.methods import from_settings
from prolip.methods.selection import cross_validate
from prolip.report.html import Html, json_script, tag


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def body_of(page):
    """The page without its program, data and style."""
    return re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)


def test_everything_is_text_unless_it_says_otherwise():
    assert (
        tag("b", "<i>", Html("<i></i>"), title='"><x>')
        == '<b title="&quot;&gt;&lt;x&gt;">&lt;i&gt;<i></i></b>'
    )
    script = json_script("d", {"name": "</script><b>"})
    assert script.count("</script>") == 1
    assert json.loads(script[script.index(">") + 1 : -len("</script>")]) == {"name": "</script><b>"}


@pytest.fixture
def saved(colour_model, tmp_path):
    colour_model.save(tmp_path / "model")
    return tmp_path / "model"


def test_a_page_about_test_images(prolip, saved, photos, tmp_path):
    code, out, err = prolip("report", saved, photos, "-o", tmp_path / "r.html", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["accuracy"], found["images"], found["held_out"]) == (1.0, 12, 0)
    assert found["accuracy_interval"][1] == 1.0
    page = (tmp_path / "r.html").read_text()
    data = data_of(page)
    assert data["classes"] == ["blue", "green", "red"]
    assert len(data["images"]) == 12
    assert all(image["src"].startswith("data:image/jpeg;base64,") for image in data["images"])
    assert data["images"][0]["name"] == "blue/0.png"
    for words in ("100.0\u00a0%", "balanced accuracy", "macro F1", "Calibration", "Learning curve",
                  "How it was made", "None of them is a training image", "offline"):  # fmt: skip
        assert words in body_of(page), words
    assert "http" not in body_of(page).replace("http-equiv", "")


def test_without_a_folder_the_page_is_about_held_out_support_images(prolip, saved, tmp_path):
    code, out, err = prolip("report", saved, "-o", tmp_path / "r.html", "--json")
    assert code == 0, err
    assert json.loads(out)["held_out"] == 12
    page = (tmp_path / "r.html").read_text()
    assert "src" not in data_of(page)["images"][0]
    assert "12 of them are training images" in body_of(page)


def test_a_file_of_the_user_is_not_replaced(prolip, saved):
    page = Path("report.html")
    page.write_text("<p>mine</p>")
    assert prolip("report", saved)[0] == 2
    assert page.read_text() == "<p>mine</p>"
    assert prolip("report", saved, "-o", page)[0] == 2
    page.unlink()
    for arguments in (("-o", page), ()):  # a page of ours is replaced
        assert prolip("report", saved, *arguments)[0] == 0
        assert data_of(page.read_text("utf-8"))["classes"] == ["blue", "green", "red"]


@pytest.mark.parametrize("support", [True, False])
def test_optimistic_figures_are_reported(prolip, offline, photos, tmp_path, support):
    """Without the features of its support set, a model cannot be fitted again to answer for it."""
    FewShotClassifier(offline, "prolip", options={"lam": 0.3}, store=False).fit(photos).save(
        tmp_path / "m", support=support
    )
    code, out, err = prolip("report", tmp_path / "m", photos / "train", "-o", tmp_path / "r.html", "--json")
    assert code == 0, err
    assert json.loads(out)["held_out"] == (18 if support else 0)
    assert ("18 of these images were in the training set: the accuracy is optimistic" in err) == (not support)


def test_training_images_are_predicted_by_fits_without_them(offline, photos):
    clf = FewShotClassifier(offline, "prolip", options={"lam": 0.3}, store=False).fit(photos)
    model = clf.model_
    expected = cross_validate(from_settings(model.fitted.settings), model.support.task, seed=0)
    held_out = evaluate_support(model)
    assert np.allclose(held_out.logits, expected.logits, atol=1e-4)

    labelled = read_labelled(str(photos / "train"), None, split="test", classes=model.classes)
    answers = evaluate_images(model, labelled, clf.reading, held_out=True)
    assert answers.held_out.all()
    place = {key: i for i, key in enumerate(model.support.hashes)}
    order = [place[key] for key in clf.features(labelled.images).hashes]
    assert np.allclose(answers.logits, expected.logits[order], atol=1e-4)
    plain = evaluate_images(model, labelled, clf.reading)
    assert not np.allclose(plain.logits, answers.logits, atol=1e-2)
    assert plain.in_support.all()
    assert not plain.held_out.any()


def test_the_single_image_of_a_class_is_left_out(offline, photos):
    for path in sorted((photos / "train" / "red").iterdir())[1:]:
        path.unlink()
    clf = FewShotClassifier(offline, "prolip", options={"lam": 0.3}, store=False).fit(photos)
    labelled = read_labelled(str(photos / "train"), None, split="test", classes=clf.model_.classes)
    answers = evaluate_images(clf.model_, labelled, clf.reading, held_out=True)
    assert np.bincount(answers.y, minlength=3).tolist() == [6, 6, 0]


def test_eval_writes_every_prediction(prolip, saved, photos, tmp_path):
    answers = tmp_path / "answers.csv"
    assert prolip("eval", saved, photos, "--out", answers)[1].splitlines()[-1] == f"Predictions: {answers}"
    rows = list(csv.DictReader(answers.read_text().splitlines()))
    assert list(rows[0]) == ["path", "label", "class", "probability"]
    predicted = json.loads(prolip("predict", saved, photos / "test", "--json")[1])
    expected = {row["image"]: (row["class"], row["probability"]) for row in predicted}
    assert {row["path"]: row["class"] for row in rows} == {name: row[0] for name, row in expected.items()}
    assert all(abs(float(row["probability"]) - expected[row["path"]][1]) < 1e-4 for row in rows)
    assert all(row["label"] == row["path"].split("/")[-2] for row in rows)


def test_thumbnails_skip_what_cannot_be_read_and_are_limited(tmp_path, monkeypatch):
    from prolip.report import thumbnails

    (tmp_path / "broken.png").write_bytes(b"not an image")
    images = [blotch(COLOURS["red"], i) for i in range(6)]
    images[1] = tmp_path / "broken.png"
    images[0] = images[0].resize((900, 700))
    found = thumbnails.thumbnails(images, [2, 1, 0])
    assert images[0].size == (900, 700)  # it is the caller's
    assert list(found) == [2, 0]
    payload = base64.b64decode(found[0].removeprefix("data:image/jpeg;base64,"))
    shown = np.asarray(Image.open(io.BytesIO(payload)), np.float32)
    np.testing.assert_allclose(shown.mean((0, 1)), np.asarray(images[0]).mean((0, 1)), atol=3)
    monkeypatch.setattr(thumbnails, "MOST", 2)
    assert list(thumbnails.thumbnails(images, [5, 5, 4, 3])) == [5, 4]
