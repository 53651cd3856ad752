"""`prolip predict --out`: a new file of predictions."""

import csv
import json
import os
import shutil
import sys

import pytest


@pytest.fixture
def model(colour_model, tmp_path):
    colour_model.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def heap(photos, tmp_path):
    (tmp_path / "heap").mkdir()
    for i, path in enumerate(sorted(photos.glob("test/*/*.png"))[::2]):
        shutil.copy(path, tmp_path / "heap" / f"{i}.png")
    return sorted((tmp_path / "heap").iterdir())


def table(path):
    return list(csv.DictReader(path.read_text("utf-8").splitlines()))


def test_predictions_are_the_same_every_way(prolip, heap, model, tmp_path, monkeypatch):
    monkeypatch.setattr("prolip.api.predict.CHUNK", 2)
    common = (model, heap[0].parent, heap[0], "--top", 2, "--reject", "--json")
    shown = json.loads(prolip("predict", *common)[1])
    assert [row["image"] for row in shown] == list(map(str, heap))
    code, out, err = prolip("predict", *common, "--out", tmp_path / "a.CSV")
    assert (code, json.loads(out)["written"]) == (0, len(heap)), err
    for cells, row in zip(table(tmp_path / "a.CSV"), shown, strict=True):
        assert cells["image"] == row["image"]
        assert cells["class"] == (row["class"] or "")
        assert cells["rejected"] == str(row["rejected"]).lower()
        assert (cells["class_2"], float(cells["probability_2"])) == tuple(row["top"][1].values())


def test_a_file_that_is_there_stays_as_it_is(prolip, heap, model, tmp_path):
    (tmp_path / "mine.csv").write_text("id,price\n1,10\n")
    assert prolip("predict", model, heap[0], "--out", tmp_path / "mine.csv")[0] == 2
    assert (tmp_path / "mine.csv").read_text() == "id,price\n1,10\n"


@pytest.mark.skipif(sys.platform != "linux", reason="names that are not UTF-8")
def test_names_that_are_not_text(prolip, heap, model, tmp_path):
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png")
    shutil.copy(heap[0], odd)
    assert prolip("predict", model, odd, "--out", tmp_path / "a.csv")[0] == 0
    assert table(tmp_path / "a.csv")[0]["image"].endswith("caf\\udce9.png")


def test_unreadable_images_are_left_out(prolip, heap, model, tmp_path, monkeypatch):
    monkeypatch.setattr("prolip.api.predict.CHUNK", 2)
    for bad in heap[2:4]:  # a whole chunk
        bad.write_bytes(b"not an image")
    code, _, err = prolip("predict", model, heap[0].parent, "--out", tmp_path / "a.csv", "--strict")
    assert (code, heap[2].name in err) == (1, True)
    assert not (tmp_path / "a.csv").exists()
    code, out, _ = prolip("predict", model, heap[0].parent, "--out", tmp_path / "b.csv", "--json")
    assert (code, json.loads(out)["written"], json.loads(out)["skipped"]) == (0, len(heap) - 2, 2)
