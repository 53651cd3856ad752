import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from prolip.core import ModelError, SavedModelError, UsageError
from prolip.encoders.hub import _CACHE_ONLY
from prolip.export.base_model import load_base
from prolip.export.saved import SavedModel, manifest_checksum, read_model, write_model
from prolip.io.writing import WriteError


@pytest.fixture
def folder(tmp_path):
    write_model(tmp_path / "model", SavedModel({"model": "offline"}, {"w": np.arange(6.0).reshape(2, 3)}))
    return tmp_path / "model"


def data_file(folder, kind="prolip"):
    (file,) = folder.glob(f"{kind}-*.safetensors")
    return file


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_saving_again_replaces_the_model_and_leaves_nothing_beside_it(folder):
    write_model(folder, SavedModel({"model": "other"}, {}))
    assert read_model(folder).config["model"] == "other"
    assert [p.name for p in folder.parent.iterdir()] == ["model"]


def test_a_model_that_cannot_be_replaced_stays(folder, monkeypatch):
    rename, before = Path.replace, names(folder)

    def fails(self, target):
        if Path(target).name == "prolip.json":
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(WriteError):
        write_model(folder, SavedModel({"model": "other"}, {"w": np.zeros(3)}))
    assert read_model(folder).config["model"] == "offline"
    assert names(folder) == before


def test_files_of_the_user_beside_a_model_stay(folder):
    (folder / "notes.txt").write_text("mine")
    (folder / "README.md").write_text("mine too")
    (folder / "prolip-0123456789abcdef.safetensors").write_text("not what its name says: not ours")
    write_model(folder, SavedModel({"model": "other"}, {"w": np.zeros(3)}))
    assert (folder / "notes.txt").read_text() == "mine"
    assert (folder / "README.md").read_text() == "mine too"
    assert (folder / "prolip-0123456789abcdef.safetensors").exists()


def test_a_readme_alone_is_the_users(tmp_path):
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(UsageError):
        write_model(tmp_path, SavedModel({}, {}))
    assert (tmp_path / "README.md").read_text() == "mine"


def test_a_folder_is_written_by_its_name_through_a_link_and_from_inside(tmp_path, folder, monkeypatch):
    """F12 and F14: the link became a folder; `.` was busy."""
    (tmp_path / "latest").symlink_to("model")
    write_model(tmp_path / "latest", SavedModel({"model": "linked"}, {}))
    assert (tmp_path / "latest").is_symlink()
    assert read_model(folder).config["model"] == "linked"
    monkeypatch.chdir(folder)
    write_model(Path(), SavedModel({"model": "inside"}, {}))
    assert read_model(folder).config["model"] == "inside"


def test_what_a_killed_process_left_is_no_hindrance(tmp_path):
    """A data file without a manifest, and a temporary name: killed in the middle of the first save."""
    write_model(tmp_path / "model", SavedModel({"model": "a"}, {"w": np.zeros(3)}))
    (tmp_path / "model" / "prolip.json").unlink()
    (tmp_path / "model" / ".prolip-tmp-x").write_text("half")
    write_model(tmp_path / "model", SavedModel({"model": "b"}, {"w": np.ones(3)}))
    assert read_model(tmp_path / "model").config["model"] == "b"


def test_a_reader_follows_a_model_that_is_replaced_under_it(folder, monkeypatch):
    from prolip.export import saved

    real, replaced = saved.read_checked, []

    def replace_first(file, expected):
        if not replaced:
            replaced.append(True)
            write_model(folder, SavedModel({"model": "new"}, {"w": np.ones(2)}))
        return real(file, expected)

    monkeypatch.setattr(saved, "read_checked", replace_first)
    model = read_model(folder)
    assert model.config["model"] == "new"
    assert model.tensors["w"].tolist() == [1, 1]


def test_two_that_grew_from_one_model_do_not_overwrite_each_other(folder):
    before = manifest_checksum(folder)
    write_model(folder, SavedModel({"model": "first"}, {}), over=before)
    with pytest.raises(UsageError):
        write_model(folder, SavedModel({"model": "second"}, {}), over=before)
    assert read_model(folder).config["model"] == "first"
    shutil.rmtree(folder)  # a model that was removed is not another one
    write_model(folder, SavedModel({"model": "again"}, {}), over=before)
    assert read_model(folder).config["model"] == "again"


def without(name):
    return lambda folder: next(folder.glob(name)).unlink()


def with_format(number):
    def change(folder):
        config = json.loads((folder / "prolip.json").read_text())
        (folder / "prolip.json").write_text(json.dumps({**config, "format": number}))

    return change


def another_bit(folder):
    content = bytearray(data_file(folder).read_bytes())
    content[-1] ^= 1
    data_file(folder).write_bytes(bytes(content))


def half_a_manifest(folder):
    text = (folder / "prolip.json").read_text()
    (folder / "prolip.json").write_text(text[: len(text) // 2])


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        (without("prolip.json"), "no saved model"),
        (without("prolip-*.safetensors"), "not a complete saved model"),
        (lambda folder: shutil.rmtree(folder), "no saved model"),
        (another_bit, "altered"),
        (half_a_manifest, "damaged"),
        (with_format(99), "another version"),
        (with_format(1), "another version"),
    ],
)
def test_what_is_no_saved_model_is_refused(folder, harm, problem):
    harm(folder)
    with pytest.raises(SavedModelError, match=problem):
        read_model(folder)


@pytest.fixture
def hub(monkeypatch):
    """Encoders by name, none of them real; what was loaded, and whether it could have been downloaded."""
    asked = []

    def load(name, device):
        asked.append((name, not _CACHE_ONLY.get()))
        return SimpleNamespace(name=name, fingerprint="b")

    monkeypatch.setattr("prolip.encoders.load", load)
    return asked


def test_a_base_model_with_other_weights_is_refused(hub):
    assert load_base("model", "hf:some/clip", "b", "cpu").fingerprint == "b"
    with pytest.raises(
        ModelError, match="fitted on hf:some/clip with weights a, but the weights found here are b"
    ):
        load_base("model", "hf:some/clip", "a", "cpu")


def test_the_base_that_a_file_names_is_loaded_without_a_download(hub):
    load_base("model", "hf:some/clip", "b")
    load_base("model", "hf:some/clip", "b", base="hf:my/copy")
    assert hub == [("hf:some/clip", False), ("hf:my/copy", True)]
