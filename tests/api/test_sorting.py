"""`prolip predict --sort-into`: copies of images in a folder for each class."""

import json
import shutil

import pytest

from prolip.api.output import folder_names


@pytest.fixture
def model(colour_model, tmp_path):
    colour_model.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def heap(photos, tmp_path):
    """The test images in two folders, under names that collide."""
    for i, path in enumerate(sorted(photos.glob("test/*/*.png"))):
        folder = tmp_path / "heap" / str(i % 2)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / f"{path.parent.name[0]}{i // 2}.png")
    return tmp_path / "heap"


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.png"))}


def test_images_are_copied_and_a_second_run_changes_nothing(prolip, model, heap, photos, tmp_path):
    before, target = contents(heap), tmp_path / "sorted"
    for _ in range(2):
        code, out, err = prolip("predict", model, heap, "--sort-into", target, "--json")
        assert code == 0, err
        assert json.loads(out)["sorted"] == {"red": 4, "green": 4, "blue": 4}
        copies = contents(target)
        assert len(copies) == 12
        for colour in ("red", "green", "blue"):
            originals = {path.read_bytes() for path in (photos / "test" / colour).iterdir()}
            assert {data for name, data in copies.items() if name.startswith(colour)} == originals
    assert contents(heap) == before


def test_a_file_that_is_there_stays(prolip, model, heap, tmp_path):
    taken = tmp_path / "s" / "red" / "r0.png"
    taken.parent.mkdir(parents=True)
    taken.write_text("mine")
    image = next(path for path in heap.rglob("r*.png"))
    shutil.copy(image, image.with_name("r0.png"))
    assert prolip("predict", model, image.with_name("r0.png"), "--sort-into", tmp_path / "s")[0] == 0
    assert taken.read_text() == "mine"
    assert taken.with_name("r0-2.png").read_bytes() == image.read_bytes()


@pytest.mark.parametrize("target", ["", "sorted"])
def test_images_are_not_sorted_into_their_own_folder(prolip, model, heap, target):
    before = contents(heap)
    (heap.parent / "alias").symlink_to(heap)
    for place in (heap / target, heap.parent / "alias" / target):
        code, out, _ = prolip("predict", model, heap, "--sort-into", place)
        assert (code, out) == (2, "")
    assert contents(heap) == before


def test_one_image_that_cannot_be_copied_does_not_stop_the_others(prolip, model, heap, tmp_path):
    blocked = tmp_path / "s"
    blocked.mkdir()
    (blocked / "red").write_text("a file in the place of a folder")
    code, out, err = prolip("predict", model, heap, "--sort-into", blocked, "--json")
    assert code == 0, err
    assert json.loads(out)["sorted"] == {"green": 4, "blue": 4}
    assert json.loads(out)["failed"] == 4


def test_rejected_and_unsure_images_have_folders(prolip, model, heap, tmp_path):
    options = ("--sort-into", tmp_path / "s", "--unsure", "1", "--reject", "--json")
    code, out, err = prolip("predict", model, heap, *options)
    assert code == 0, err
    outcome = json.loads(out)["sorted"]
    assert set(outcome) <= {"unsure", "none-of-these"}
    assert sum(outcome.values()) == 12
    assert prolip("predict", model, heap, "--unsure", "0.5")[0] == 2


def test_every_class_has_a_folder_of_its_own():
    names = ["unsure", "none-of-these", "a/b", "a_b", "..", "Cat", "cat", "x" * 300, "x" * 300 + "y"]
    folders = list(folder_names(names).values())
    assert len({name.casefold() for name in folders} | {"unsure", "none-of-these"}) == len(names) + 2
    assert all(len(name) < 200 and "/" not in name and name.strip(".") for name in folders)
