"""Stored features that follow a new projection without an image being opened."""

import json
import shutil
import sqlite3

import numpy as np
import pytest
from safetensors.numpy import load_file

from pictures import blotch
from prolip import encoders
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
