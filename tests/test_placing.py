"""Files into other folders: never over another, never half, and a second run changes nothing."""

import os

import pytest

from prolip.core import InputError
from prolip.core.placing import folder_names, place


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / "in" / "a.jpg"
    path.parent.mkdir()
    path.write_bytes(b"one")
    return path


@pytest.mark.parametrize("how", ["copy", "link", "move"])
def test_a_file_comes_to_its_place_and_stays_what_it_is(photo, tmp_path, how):
    target = place(photo, tmp_path / "out", how)
    assert target == tmp_path / "out" / "a.jpg"
    assert target.read_bytes() == b"one"
    assert target.is_symlink() == (how == "link")
    assert photo.exists() == (how != "move")
    if how != "move":
        assert place(photo, tmp_path / "out", how) == target
        assert len(list((tmp_path / "out").iterdir())) == 1


@pytest.mark.parametrize("how", ["copy", "link", "move"])
def test_another_file_of_the_same_name_is_never_touched(photo, tmp_path, how):
    (tmp_path / "out").mkdir()
    for name, content in (("a.jpg", b"two"), ("a-2.jpg", b"three")):
        (tmp_path / "out" / name).write_bytes(content)
    assert place(photo, tmp_path / "out", how).name == "a-3.jpg"
    found = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert found == {"a.jpg": b"two", "a-2.jpg": b"three", "a-3.jpg": b"one"}


def test_a_move_that_was_cut_short_is_finished(photo, tmp_path):
    """Killed between the second name and the end of the first: both are there, as one file."""
    (tmp_path / "out").mkdir()
    os.link(photo, tmp_path / "out" / "a.jpg")
    assert place(photo, tmp_path / "out", "move").read_bytes() == b"one"
    assert not photo.exists()


def test_a_move_across_disks_is_a_copy_and_then_the_end_of_the_first(photo, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    assert place(photo, tmp_path / "out", "move").read_bytes() == b"one"
    assert not photo.exists()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.jpg"]


def test_a_link_is_moved_and_not_what_it_leads_to(photo, tmp_path):
    link = tmp_path / "link.jpg"
    link.symlink_to(photo)
    assert place(link, tmp_path / "out", "move").read_bytes() == b"one"
    assert photo.exists()
    assert not link.is_symlink()


def test_moving_onto_a_link_to_itself_keeps_the_file(photo, tmp_path):
    place(photo, tmp_path / "out", "link")
    target = place(photo, tmp_path / "out", "move")
    assert target.name == "a-2.jpg"
    assert target.read_bytes() == b"one"


def test_what_is_not_there_is_told(tmp_path):
    with pytest.raises(InputError, match=r"gone\.jpg is not there"):
        place(tmp_path / "gone.jpg", tmp_path / "out", "copy")


def test_every_name_becomes_a_folder_of_its_own(tmp_path):
    names = ["cat", "Cat", "a/b", "a\\b", "..", ".", "", "CON", "nul.txt", "x" * 300, "ü" * 150, "end. "]
    names += ["a\nb", ".hidden", "<script>", "犬"]
    found = folder_names(names)
    assert len({name.casefold() for name in found}) == len(names)
    for name in found:
        (tmp_path / name).mkdir()  # the file system takes it, and it leads nowhere else
        assert (tmp_path / name).resolve().parent == tmp_path.resolve()
        assert not name.startswith(".")
        assert not set(name) & set('<>:"/\\|?*\n')
    assert found[0] == "cat"
    assert found[-1] == "犬"
