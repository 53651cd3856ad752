"""`prolip predict --out`: a new file, or one that grows."""

import csv
import io
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
    common = ("--top", 2, "--reject", "--json")
    shown = json.loads(prolip("predict", model, heap[0].parent, *common)[1])
    assert [row["image"] for row in shown] == list(map(str, heap))
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{path}\n" for path in heap)))
    code, _, err = prolip("predict", model, "-", *common, "--out", tmp_path / "a.jsonl")
    assert code == 0, err
    written = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert written == shown
    code, out, err = prolip("predict", model, heap[0].parent, *common, "--out", tmp_path / "a.CSV")
    assert (code, json.loads(out)["written"]) == (0, len(heap)), err
    for cells, row in zip(table(tmp_path / "a.CSV"), shown, strict=True):
        assert cells["image"] == row["image"]
        assert cells["class"] == (row["class"] or "")
        assert cells["rejected"] == str(row["rejected"]).lower()
        assert (cells["class_2"], float(cells["probability_2"])) == tuple(row["top"][1].values())


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_an_interrupted_run_is_continued(prolip, heap, model, tmp_path, suffix):
    out = tmp_path / f"a.{suffix}"
    assert prolip("predict", model, *heap[:3], "--out", out)[0] == 0
    whole = out.read_bytes()
    out.write_bytes(whole[:-5])
    assert prolip("predict", model, *heap[:3], "--out", out)[0] == 2  # it exists
    code, said, err = prolip("predict", model, heap[0].parent, "--out", out, "--append", "--json")
    assert code == 0, err
    assert (json.loads(said)["written"], json.loads(said)["already"]) == (len(heap) - 2, 2)
    assert out.read_bytes().startswith(whole)
    assert out.read_bytes().count(b".png") == len(heap)


def test_images_of_one_name_in_two_folders_are_two(prolip, heap, model, tmp_path, monkeypatch):
    out = tmp_path / "a.csv"
    other = tmp_path / "other" / heap[0].name
    other.parent.mkdir()
    shutil.copy(heap[-1], other)
    for folder in (heap[0].parent, other.parent, heap[0].parent):
        monkeypatch.chdir(folder)
        assert prolip("predict", model, heap[0].name, "--out", out, "--append")[0] == 0
    assert [row["image"] for row in table(out)] == [str(heap[0]), str(other)]
    assert table(out)[0]["class"] != table(out)[1]["class"]


@pytest.mark.parametrize("text", ["id,price\n1,10\n", '{"id": 1}\n', "[1]\n"])
@pytest.mark.parametrize("name", ["mine.csv", "mine.jsonl"])
def test_a_file_of_something_else_stays_as_it_is(prolip, heap, model, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    for options in ((), ("--append",)):
        assert prolip("predict", model, heap[0], "--out", tmp_path / name, *options)[0] == 2
    assert (tmp_path / name).read_text() == text


def test_wrong_use_is_told(prolip, heap, model, photos, tmp_path):
    assert prolip("predict", model, heap[0], "--append")[0] == 2
    assert prolip("predict", model, heap[0], "--out", tmp_path / "a.xls")[0] == 2
    shutil.make_archive(tmp_path / "photos", "zip", photos)
    code, _, err = prolip("predict", model, tmp_path / "photos.zip", "--out", tmp_path / "a.csv", "--append")
    assert (code, "unpack" in err) == (2, True)
    assert prolip("predict", model, tmp_path / "photos.zip", "--out", tmp_path / "b.csv")[0] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="names that are not UTF-8")
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_names_that_are_not_text(prolip, heap, model, tmp_path, suffix):
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png")
    shutil.copy(heap[0], odd)
    for written in (1, 0):
        out = tmp_path / f"a.{suffix}"
        code, said, err = prolip("predict", model, odd, "--out", out, "--append", "--json")
        assert (code, json.loads(said)["written"]) == (0, written), err


def test_unreadable_images_are_left_out(prolip, heap, model, tmp_path, monkeypatch):
    monkeypatch.setattr("prolip.api.predict.CHUNK", 2)
    for bad in heap[2:4]:  # a whole chunk
        bad.write_bytes(b"not an image")
    code, _, err = prolip("predict", model, heap[0].parent, "--out", tmp_path / "a.csv", "--strict")
    assert (code, heap[2].name in err) == (1, True)
    code, out, _ = prolip("predict", model, heap[0].parent, "--out", tmp_path / "b.csv", "--json")
    assert (code, json.loads(out)["written"], json.loads(out)["skipped"]) == (0, len(heap) - 2, 2)
