import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from prolip.core import ModelError, ProlipError, SavedModelError, UsageError
from prolip.export import saved
from prolip.export.saved import SavedModel, load_base, read_model, write_model


@pytest.fixture
def folder(tmp_path):
    write_model(tmp_path / "model", SavedModel({"model": "offline"}, {"w": np.arange(6.0).reshape(2, 3)}))
    return tmp_path / "model"


def test_round_trip(folder):
    model = read_model(folder)
    assert model.config["model"] == "offline"
    assert np.array_equal(model.tensors["w"], np.arange(6.0).reshape(2, 3))


def test_saving_again_replaces_the_model_and_leaves_nothing_beside_it(folder):
    write_model(folder, SavedModel({"model": "other"}, {}))
    assert read_model(folder).config["model"] == "other"
    assert [p.name for p in folder.parent.iterdir()] == ["model"]


def test_a_model_that_cannot_be_replaced_stays(folder, monkeypatch):
    rename = Path.replace

    def fails(self, target):
        if Path(target) == folder and not self.name.endswith(".old"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(ProlipError, match="cannot write"):
        write_model(folder, SavedModel({"model": "other"}, {}))
    assert read_model(folder).config["model"] == "offline"
    assert [p.name for p in folder.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("name", ["prolip.json", "prolip.safetensors"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(SavedModelError, match=f"{name} is missing"):
        read_model(folder)


@pytest.mark.parametrize("name", ["prolip.json", "prolip.safetensors"])
def test_an_altered_file_is_refused(folder, name):
    content = bytearray((folder / name).read_bytes())
    place = content.index(b"offline") if name == "prolip.json" else len(content) - 1
    content[place] ^= 1
    (folder / name).write_bytes(bytes(content))
    with pytest.raises(SavedModelError, match="was altered"):
        read_model(folder)


def test_a_truncated_json_is_refused(folder):
    text = (folder / "prolip.json").read_text()
    (folder / "prolip.json").write_text(text[: len(text) // 2])
    with pytest.raises(SavedModelError, match="damaged"):
        read_model(folder)


def test_a_newer_format_asks_for_an_upgrade(folder):
    config = json.loads((folder / "prolip.json").read_text())
    (folder / "prolip.json").write_text(json.dumps({**config, "format": 99}))
    with pytest.raises(SavedModelError, match="newer version"):
        read_model(folder)


def test_a_base_model_with_other_weights_is_refused(monkeypatch):
    monkeypatch.setattr("prolip.encoders.load", lambda *_: SimpleNamespace(fingerprint="b"))
    assert load_base("model", "hf:some/clip", "b", "cpu").fingerprint == "b"
    with pytest.raises(
        ModelError, match="fitted on hf:some/clip with weights a, but the weights found here are b"
    ):
        load_base("model", "hf:some/clip", "a", "cpu")


def test_no_folder_at_all(tmp_path):
    with pytest.raises(SavedModelError, match="no such folder"):
        read_model(tmp_path / "nowhere")


def test_other_peoples_files_are_not_overwritten(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        write_model(tmp_path, SavedModel({}, {}))


def test_a_full_disk_leaves_the_old_model(folder, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saved, "write_json", full)
    with pytest.raises(ProlipError, match="no space left"):
        write_model(folder, SavedModel({"model": "other"}, {}))
    assert read_model(folder).config["model"] == "offline"
    assert [p.name for p in folder.parent.iterdir()] == ["model"]
