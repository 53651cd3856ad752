"""Stored features that follow a new projection without an image being opened."""

import copy
import io
import json
import os
import resource
import shutil
import sqlite3
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

from pictures import blotch
from prolip import encoders
from prolip.api.prediction_file import PredictionFile
from prolip.core import Head, InputError, UsageError
from prolip.export import reproject as module
from prolip.export.reproject import reproject
from prolip.features.embed import embed, open_store
from prolip.io.writing import WriteError


@pytest.fixture(autouse=True)
def one_encoder(offline, monkeypatch):
    """Load the towers once for all of these tests."""
    load = encoders.load
    monkeypatch.setattr("prolip.encoders.load", lambda name, *_: offline if name == "offline" else load(name))


@pytest.fixture
def archive(tmp_path):
    """Seven pictures, two of them the same."""
    folder = tmp_path / "archive"
    folder.mkdir()
    for i in range(6):
        blotch((40 * i, 200 - 30 * i, 90), i).save(folder / f"{i}.png")
    shutil.copy(folder / "0.png", folder / "copy.png")
    return sorted(folder.iterdir())


def expected(offline, paths, head):
    from PIL import Image

    pixels = np.stack([offline.preprocess.centre(Image.open(path)) for path in paths])
    v = head(offline.encode(pixels))
    return v / np.linalg.norm(v, axis=1, keepdims=True)


@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_a_store_becomes_embeddings_with_their_paths(offline, archive, tmp_path, suffix):
    head = offline.head.with_weight(offline.head.weight * 2 + 0.01)
    for number in (1, 2):
        embed(offline, archive, tmp_path / "store", shard=(number, 2))
    out = tmp_path / f"index{suffix}"
    assert reproject(tmp_path / "store", head, out, encoder=offline) == 7
    found = np.load(out) if suffix == ".npy" else load_file(out)["embeddings"]
    lines = (tmp_path / f"index{suffix}.paths.jsonl").read_text().splitlines()
    paths = [json.loads(line) for line in lines]
    assert sorted(paths) == [str(path) for path in archive]
    np.testing.assert_allclose(found, expected(offline, paths, head), atol=1e-5)


def test_a_run_that_was_stopped_goes_on(offline, archive, tmp_path, monkeypatch):
    store = tmp_path / "store"
    embed(offline, archive[:3], store)
    opened = []
    encode = offline.encode
    monkeypatch.setattr(offline, "encode", lambda pixels: opened.append(len(pixels)) or encode(pixels))
    done = embed(offline, archive, store)
    assert (done.images, done.already, sum(opened)) == (4, 3, 3)  # the copy is not encoded
    assert sorted(path for path, _ in open_store(store, offline)[1]) == sorted(map(str, archive))
    assert embed(offline, archive, store).images == 0


def test_features_that_were_lost_are_made_again(offline, archive, tmp_path):
    store = tmp_path / "store"
    embed(offline, archive, store)
    (file,) = store.glob("*.sqlite")
    table = sqlite3.connect(file)
    with table:
        table.execute("DELETE FROM features")
    table.close()
    with pytest.raises(InputError):
        reproject(store, offline.head, tmp_path / "i.npy", encoder=offline)
    assert embed(offline, archive, store).encoded == 6
    assert reproject(store, offline.head, tmp_path / "i.npy", encoder=offline) == 7


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_an_array_is_streamed_block_by_block(tmp_path, monkeypatch, dtype):
    monkeypatch.setattr(module, "BLOCK", 16)
    rng = np.random.default_rng(0)
    x, weight, adapter = rng.normal(size=(50, 6)), rng.normal(size=(6, 4)), rng.normal(size=(4, 4))
    np.save(tmp_path / "x.npy", x.astype(np.float16))
    bias = np.array([0.1, -0.2, 0.3, 0.0])
    seen = []
    reproject(
        tmp_path / "x.npy",
        Head(weight, bias),
        tmp_path / "z.npy",
        adapter=adapter,
        dtype=dtype,
        progress=lambda done, total: seen.append((done, total)),
    )
    z = np.load(tmp_path / "z.npy")
    v = (x.astype(np.float16).astype(np.float64) @ weight + bias) @ adapter
    np.testing.assert_allclose(
        z, v / np.linalg.norm(v, axis=1, keepdims=True), atol=1e-3 if dtype == "float16" else 1e-5
    )
    assert z.dtype == dtype
    assert seen == [(16, 50), (32, 50), (48, 50), (50, 50)]


@pytest.mark.parametrize(
    ("name", "error"),
    [("z.csv", UsageError), ("z.npy", InputError)],
)
def test_wrong_files(tmp_path, name, error):
    np.save(tmp_path / "x.npy", np.zeros((3, 5), np.float32))
    with pytest.raises(error):
        reproject(tmp_path / "x.npy", Head(np.eye(6)), tmp_path / name)


def test_bad_values_and_full_disks_leave_no_file(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.full((3, 4), np.nan, np.float32))
    with pytest.raises(InputError):
        reproject(tmp_path / "x.npy", Head(np.eye(4)), tmp_path / "z.npy")
    np.save(tmp_path / "x.npy", np.ones((3, 4), np.float32))

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_header", full)
    with pytest.raises(WriteError):
        reproject(tmp_path / "x.npy", Head(np.eye(4)), tmp_path / "z.npy")
    assert [file.name for file in tmp_path.iterdir()] == ["x.npy"]


@pytest.fixture
def model(colour_model, tmp_path):
    colour_model.save(tmp_path / "model")
    return tmp_path / "model"


def test_embed_and_reproject_commands(prolip, offline, archive, colour_model, model, tmp_path):
    code, out, err = prolip("embed", archive[0].parent, "-o", tmp_path / "store", "--json")
    assert code == 0, err
    assert json.loads(out)["images"] == 7
    code, out, err = prolip("reproject", tmp_path / "store", model, "-o", tmp_path / "z.npy", "--json")
    assert code == 0, err
    assert json.loads(out)["rows"] == 7
    paths = [json.loads(line) for line in (tmp_path / "z.npy.paths.jsonl").read_text().splitlines()]
    np.testing.assert_allclose(
        np.load(tmp_path / "z.npy"), expected(offline, paths, colour_model.fitted_.head), atol=1e-5
    )
    code, _, err = prolip("embed", archive[0].parent, "-o", tmp_path / "store", "--shard", "3/2")
    assert (code, "3/2" in err) == (2, True)


def test_answers_are_streamed_resumed_and_the_same_every_way(prolip, archive, model, tmp_path, monkeypatch):
    monkeypatch.setattr("prolip.api.predict.CHUNK", 2)
    code, out, _ = prolip("predict", model, archive[0].parent, "--top", 2, "--reject", "--json")
    listed = json.loads(out)
    assert [a["image"] for a in listed] == [str(path) for path in archive]
    assert all((a["class"] is None) == a["rejected"] for a in listed)

    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{path}\n" for path in archive)))
    answers = tmp_path / "answers.jsonl"
    code, out, err = prolip("predict", model, "-", "--top", 2, "--reject", "--out", answers, "--json")
    assert code == 0, err
    written = [json.loads(line) for line in answers.read_text().splitlines()]
    assert [{**answer, "run": written[0]["run"]} for answer in listed] == written

    table = tmp_path / "answers.csv"
    prolip("predict", model, *archive[:3], "--top", 2, "--reject", "--out", table)
    table.write_text(table.read_text()[:-5])  # cut off in the middle of a line
    code, out, _ = prolip(
        "predict", model, archive[0].parent, "--top", 2, "--reject", "--out", table, "--json"
    )
    assert json.loads(out) == {"out": str(table), "written": 5, "already": 2, "skipped": 0}
    rows = [line.split(",") for line in table.read_text().splitlines()]
    assert rows[0] == ["image", "class", "probability", "rejected", "class_2", "probability_2", "run"]
    assert [row[0] for row in rows[1:]] == [str(path) for path in archive]
    assert [row[3] for row in rows[1:]] == [str(a["rejected"]).lower() for a in listed]

    code, _, err = prolip("predict", model, archive[0], "--out", table)
    assert (code, "name another file" in err) == (2, True)
    code, _, err = prolip("predict", model, archive[0], "--out", tmp_path / "answers.xls")
    assert (code, ".csv or .jsonl" in err) == (2, True)
    code, _, err = prolip("predict", model, archive[0], "--reject", "--false-accept", 1.5)
    assert (code, "--false-accept" in err) == (2, True)


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("name", ["mine.csv", "mine.jsonl"])
@pytest.mark.parametrize(
    "text",
    [
        '{"image": "a.jpg", "label": "cat"}',
        "id,price",
        "id,price\n1,10\n2,20",
        '{"id": 1}\n{"id": 2}',
        '{"id": 1}',
    ],
)
def test_a_file_of_something_else_is_left_as_it_is(prolip, archive, model, tmp_path, name, text, end):
    (tmp_path / name).write_text(text + end)
    code, _, err = prolip("predict", model, archive[0], "--out", tmp_path / name)
    assert (code, "name another file" in err) == (2, True), err
    assert (tmp_path / name).read_text() == text + end


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_answers_of_two_models_or_options_are_not_mixed(
    prolip, archive, model, colour_model, tmp_path, suffix
):
    out = tmp_path / f"a.{suffix}"
    assert prolip("predict", model, *archive[:2], "--out", out)[0] == 0
    first = out.read_text()
    other = tmp_path / "other"
    grown = copy.copy(colour_model)
    grown.add(names=["purple"])
    grown.save(other)
    for changed in (
        (other, *archive[:3]),
        (model, *archive[:3], "--reject"),
        (model, archive[2], "--top", 2),
    ):
        code, _, err = prolip("predict", *changed, "--out", out)
        assert (code, "name another file" in err) == (2, True), err
    assert out.read_text() == first
    assert prolip("predict", model, *archive[:3], "--out", out)[0] == 0
    assert len(out.read_text().splitlines()) == len(first.splitlines()) + 1


@pytest.mark.skipif(sys.platform != "linux", reason="names that are no UTF-8")
def test_names_that_are_no_text(prolip, archive, model, tmp_path):
    odd = os.fsencode(tmp_path) + b"/caf\xe9.png"
    shutil.copy(archive[0], odd)
    for out in (tmp_path / "a.csv", tmp_path / "a.jsonl"):
        for written in (1, 0):
            code, said, err = prolip("predict", model, os.fsdecode(odd), "--out", out, "--json")
            assert (code, json.loads(said)["written"]) == (0, written), err
        assert "caf\\udce9.png" in out.read_text(encoding="utf-8").replace("\\\\", "\\")


def test_bad_images_in_a_batch(prolip, archive, model, tmp_path, monkeypatch):
    monkeypatch.setattr("prolip.api.predict.CHUNK", 2)
    for bad in archive[2:4]:  # a whole chunk
        bad.write_bytes(b"not a picture")
    code, _, err = prolip("predict", model, archive[0].parent, "--out", tmp_path / "a.csv", "--strict")
    assert (code, archive[2].name in err) == (1, True)
    code, out, _ = prolip("predict", model, archive[0].parent, "--out", tmp_path / "b.csv", "--json")
    assert (code, json.loads(out)["written"], json.loads(out)["skipped"]) == (0, 5, 2)


def test_a_disk_that_fills_up_keeps_whole_lines(archive, tmp_path):
    """A limit on the size of files stands in for the disk."""
    file = PredictionFile(tmp_path / "a.csv", top=1, reject=False, run="r1")
    found = [{"image": f"{i:03}.jpg", "class": "red", "probability": 0.5, "top": [{}]} for i in range(4000)]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with (
            pytest.raises(WriteError),
            file.opened(),
        ):
            file.write(found)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    lines = (tmp_path / "a.csv").read_text().splitlines(keepends=True)
    assert 100 < len(lines) < 4000
    assert lines[-1] == f"{len(lines) - 2:03}.jpg,red,0.5,r1\n"
    again = PredictionFile(tmp_path / "a.csv", top=1, reject=False, run="r1")
    with again.opened():
        assert len(again.done) == len(lines) - 1
