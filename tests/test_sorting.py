"""Images into a folder for each answer, and answers by group of classes."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from prolip.api.groups import Groups, read_groups
from prolip.api.sorting import SameFolderError, Sorting
from prolip.core import InputError
from prolip.core.errors import UnknownNameError
from prolip.io.locks import MARK


@pytest.fixture
def model(colour_model, tmp_path):
    colour_model.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def unsorted(photos, tmp_path):
    """The test pictures in one heap, under names that clash."""
    for i, path in enumerate(sorted(photos.glob("test/*/*.png"))):
        folder = tmp_path / "heap" / str(i % 2)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / f"{path.parent.name[0]}{i // 2}.png")
    return tmp_path / "heap"


def sorted_files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.png"))}


@pytest.mark.parametrize("how", ["copy", "--link", "--move"])
def test_images_are_sorted_and_a_second_run_changes_nothing(prolip, model, unsorted, photos, tmp_path, how):
    heap = {path.read_bytes() for path in unsorted.rglob("*.png")}
    out = tmp_path / "sorted"
    options = [] if how == "copy" else [how]
    code, said, err = prolip("predict", model, unsorted, "--sort-into", out, *options, "--json")
    assert code == 0, err
    assert json.loads(said)["sorted"] == {"red": 4, "green": 4, "blue": 4}
    found = sorted_files(out)
    assert set(found.values()) == heap
    for colour in ("red", "green", "blue"):
        originals = {path.read_bytes() for path in (photos / "test" / colour).iterdir()}
        assert {content for name, content in found.items() if name.startswith(colour)} == originals
    assert bool(list(unsorted.rglob("*.png"))) == (how != "--move")
    if how != "--move":
        code, _, err = prolip("predict", model, unsorted, "--sort-into", out, *options)
        assert code == 0, err
        assert sorted_files(out) == found


def test_what_lies_in_the_target_is_not_sorted_again(prolip, model, unsorted):
    for _ in range(2):
        code, out, err = prolip("predict", model, unsorted, "--sort-into", unsorted / "done", "--json")
        assert code == 0, err
        assert sum(json.loads(out)["sorted"].values()) == 12


@pytest.mark.parametrize("inside", ["", "0", "0/b0.png"])
def test_the_folder_to_sort_into_cannot_be_the_one_that_is_sorted(prolip, model, unsorted, inside):
    before = sorted_files(unsorted)
    code, out, err = prolip("predict", model, unsorted / inside, "--sort-into", unsorted)
    assert (code, out) == (2, "")
    assert str(unsorted) in " ".join(err.split())
    assert sorted_files(unsorted) == before


def linked_class(photos, out):
    """A class folder of the target is a link to the source."""
    out.mkdir()
    for colour in ("red", "green", "blue"):
        (out / colour).symlink_to(photos / "test" / colour)


def linked_root(photos, out):
    out.symlink_to(photos / "test")


def mounted(photos, out):
    """The same folder mounted twice."""
    out.mkdir()
    if (
        shutil.which("mount") is None
        or subprocess.run(
            ["mount", "--bind", photos / "test", out], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("this user mounts nothing here")


@pytest.fixture
def unmounting(tmp_path):
    yield
    if shutil.which("umount"):
        subprocess.run(["umount", tmp_path / "sorted"], capture_output=True, check=False)


@pytest.mark.parametrize("alias", [linked_class, linked_root, mounted])
@pytest.mark.usefixtures("unmounting")
def test_a_folder_is_not_moved_into_itself_under_another_path(prolip, model, photos, tmp_path, alias):
    before = sorted_files(photos)
    alias(photos, tmp_path / "sorted")
    code, out, err = prolip("predict", model, photos / "test", "--sort-into", tmp_path / "sorted", "--move")
    assert (code, out) == (2, ""), err
    assert sorted_files(photos) == before
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(MARK)]


def test_copies_of_one_picture_are_all_moved(prolip, model, photos, tmp_path):
    for name in ("a", "b"):
        (tmp_path / "heap" / name).mkdir(parents=True)
        shutil.copy(photos / "test" / "red" / "0.png", tmp_path / "heap" / name / "x.png")
    code, _, err = prolip("predict", model, tmp_path / "heap", "--sort-into", tmp_path / "s", "--move")
    assert code == 0, err
    assert sorted(sorted_files(tmp_path / "s")) == ["red/x-2.png", "red/x.png"]
    assert not sorted_files(tmp_path / "heap")


@pytest.mark.parametrize("options", [("--sort-into", "s"), ("--tag",)])
def test_an_image_that_is_named_twice_is_placed_once(prolip, model, photos, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(photos / "test", "heap")
    image = Path("heap", "red", "0.png")
    code, out, err = prolip("predict", model, image, image, *options, "--json")
    assert code == 0, err
    assert sum(json.loads(out)["sorted" if "--tag" not in options else "tagged"].values()) == 1


def test_images_in_an_archive_are_not_sorted(prolip, model, photos, tmp_path):
    shutil.make_archive(tmp_path / "photos", "zip", photos)
    code, _, err = prolip("predict", model, tmp_path / "photos.zip", "--sort-into", tmp_path / "s")
    assert code == 2
    assert "unpack" in err
    assert not (tmp_path / "s").exists()


def test_unsure_and_rejected_images_have_folders_of_their_own(prolip, model, unsorted, tmp_path):
    code, out, err = prolip(
        "predict", model, unsorted, "--sort-into", tmp_path / "s", "--unsure", "1", "--reject", "--json"
    )
    assert code == 0, err
    outcome = json.loads(out)["sorted"]
    assert set(outcome) <= {"unsure", "none-of-these"}
    assert sum(outcome.values()) == 12


def test_answers_that_are_written_already_are_still_sorted(prolip, model, unsorted, tmp_path):
    answers = tmp_path / "answers.csv"
    prolip("predict", model, unsorted, "--out", answers)
    before = answers.read_text()
    code, _, err = prolip("predict", model, unsorted, "--out", answers, "--sort-into", tmp_path / "s")
    assert code == 0, err
    assert len(sorted_files(tmp_path / "s")) == 12
    assert answers.read_text() == before


def test_classes_called_like_the_other_folders_do_not_mix_with_them(tmp_path):
    sorting = Sorting(tmp_path, ["unsure", "none-of-these", "a/b"], unsure=0.5)
    sure = [sorting.folder({"class": name, "probability": 0.9}) for name in sorting.classes]
    assert sure == ["unsure-2", "none-of-these-2", "a_b"]
    assert sorting.folder({"class": "a/b", "probability": 0.4}) == "unsure"
    assert sorting.folder({"class": None, "probability": 0.9}) == "none-of-these"


@pytest.mark.parametrize(
    ("options", "outcome"),
    [
        (["--move"], "add that option"),
        (["--sort-into", "s", "--link", "--move"], "exclude each other"),
        (["--sort-into", "s", "--unsure", "2"], "0<=x<=1"),
    ],
)
def test_wrong_use_is_told(prolip, model, unsorted, options, outcome):
    code, _, err = prolip("predict", model, unsorted, *options)
    assert code == 2
    assert outcome in err


# Groups


def test_group_probabilities_are_sums():
    groups = Groups.of({"cat": "animal", "dog": "animal"}, ["cat", "car", "dog"])
    assert groups.names == ("animal", "car")
    p = np.array([[0.4, 0.35, 0.25], [0.1, 0.8, 0.1]])
    assert np.allclose(groups.sum(p), [[0.65, 0.35], [0.2, 0.8]])
    assert groups.labels(np.array([2, 1, 0])).tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("g.csv", "class,group\ncat,animal\ndog,animal\n"),
        ("g.tsv", "cat\tanimal\ndog\tanimal\n"),
        ("g.json", '{"cat": "animal", "dog": "animal"}'),
        ("h.json", '{"animal": ["cat", "dog"]}'),
    ],
)
def test_groups_are_read_from_files(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert read_groups(tmp_path / name, ["cat", "car", "dog"]) == Groups(("animal", "car"), (0, 1, 0))


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("g.csv", "cat,animal\ncow,animal\n", UnknownNameError),
        ("g.csv", "cat,animal,x\n", InputError),
        ("g.csv", "cat,animal\ncat,pet\n", InputError),
        ("g.json", "[1]", InputError),
        ("g.txt", "cat animal", InputError),
        ("g.json", '{"all": ["cat", "car", "dog"]}', InputError),
    ],
)
def test_files_that_are_not_groups_are_refused(tmp_path, name, text, error):
    (tmp_path / name).write_text(text)
    with pytest.raises(error):
        read_groups(tmp_path / name, ["cat", "car", "dog"])


def test_predict_and_eval_by_group(prolip, model, photos, tmp_path):
    (tmp_path / "g.csv").write_text("red,warm\nblue,cold\ngreen,cold\n")
    code, out, err = prolip(
        "predict", model, photos / "test", "--groups", tmp_path / "g.csv", "--top", "2", "--json"
    )
    assert code == 0, err
    plain = {
        a["image"]: a
        for a in json.loads(prolip("predict", model, photos / "test", "--top", "3", "--json")[1])
    }
    for answer in json.loads(out):
        expected = {"warm": 0.0, "cold": 0.0}
        for own in plain[answer["image"]]["top"]:
            expected["warm" if own["class"] == "red" else "cold"] += own["probability"]
        assert {own["class"]: own["probability"] for own in answer["top"]} == pytest.approx(
            expected, abs=1e-5
        )
    code, out, err = prolip("eval", model, photos, "--groups", tmp_path / "g.csv", "--json")
    assert code == 0, err
    outcome = json.loads(out)["groups"]
    assert dict(zip(outcome["names"], outcome["counts"], strict=True)) == {"warm": 4, "cold": 8}
    assert outcome["accuracy"] == 1.0


@pytest.mark.parametrize("alias", [linked_class, linked_root])
def test_two_mounts_of_a_network_disk_are_recognised_as_one_folder(photos, tmp_path, monkeypatch, alias):
    """Their devices and inodes differ, as do their resolved paths."""
    alias(photos, tmp_path / "sorted")
    monkeypatch.setattr(Path, "samefile", lambda self, other: False)
    monkeypatch.setattr(os.path, "realpath", lambda path, **_: str(Path(path).absolute()))
    sorting = Sorting(tmp_path / "sorted", ["red", "green", "blue"], "move")
    images = [(str(path), path) for path in sorted(photos.rglob("test/*/*.png"))]
    with pytest.raises(SameFolderError) as refused:
        next(sorting.remember(images))
    assert (refused.value.source / "red" / "0.png").exists() or refused.value.source.name in sorting.classes
