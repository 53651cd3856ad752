"""Files into other folders: never over another, never half, and a second run changes nothing."""

import errno
import os
from pathlib import Path

import pytest

from prolip.core import InputError, ProlipError
from prolip.io.placing import folder_names, place

LINK = os.link


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


@pytest.mark.parametrize("how", ["copied", "hard link"])
def test_a_move_never_takes_a_file_that_is_there_for_its_own(photo, tmp_path, how):
    """It may be the source under another path: what is there stays, and so does one more file."""
    target = tmp_path / "out" / "a.jpg"
    target.parent.mkdir()
    target.write_bytes(b"one") if how == "copied" else os.link(photo, target)
    assert place(photo, tmp_path / "out", "move").name == "a-2.jpg"
    assert {path.name: path.read_bytes() for path in target.parent.iterdir()} == {
        "a.jpg": b"one",
        "a-2.jpg": b"one",
    }
    assert not photo.exists()


def test_a_move_within_one_folder_keeps_the_file(photo, tmp_path):
    (tmp_path / "out").symlink_to(photo.parent)
    place(photo, tmp_path / "out", "move")
    assert [path.read_bytes() for path in photo.parent.iterdir()] == [b"one"]


def other_disk(source, target, **_):
    """`os.link` between two disks."""
    if Path(source).parent != Path(target).parent:
        raise OSError(errno.EXDEV, "Invalid cross-device link")
    LINK(source, target)


def no_links(source, target, **_):
    """`os.link` on FAT."""
    raise PermissionError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize("link", [other_disk, no_links])
@pytest.mark.parametrize("how", ["copy", "move"])
def test_files_come_to_other_disks_and_to_those_without_links(photo, tmp_path, monkeypatch, how, link):
    monkeypatch.setattr("prolip.io.placing.os.link", link)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.jpg").write_bytes(b"two")
    assert place(photo, tmp_path / "out", how).read_bytes() == b"one"
    assert photo.exists() == (how == "copy")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a-2.jpg", "a.jpg"]


@pytest.mark.parametrize("link", [os.link, other_disk, no_links])
def test_a_source_that_cannot_be_removed_is_not_doubled(photo, tmp_path, monkeypatch, link):
    """Windows refuses while another program has the file open."""

    def refuse(path, *arguments, **_):
        if Path(path) == photo:
            raise PermissionError(errno.EACCES, "The process cannot access the file")
        return unlink(path) if not arguments else replace(path, *arguments)

    unlink, replace = os.unlink, os.replace
    monkeypatch.setattr("prolip.io.placing.os.link", link)
    monkeypatch.setattr(Path, "unlink", lambda self, missing_ok=False: refuse(self))
    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(ProlipError):
        place(photo, tmp_path / "out", "move")
    assert photo.read_bytes() == b"one"
    assert not (tmp_path / "out" / "a.jpg").exists()


def test_where_symbolic_links_are_refused_there_are_hard_ones(photo, tmp_path, monkeypatch):
    """Windows asks for a privilege."""

    def refuse(*_, **__):
        raise OSError(errno.EINVAL, "A required privilege is not held by the client")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    target = place(photo, tmp_path / "out", "link")
    assert target.samefile(photo)
    monkeypatch.setattr("prolip.io.placing.os.link", no_links)
    with pytest.raises(ProlipError):
        place(photo, tmp_path / "elsewhere", "link")


def test_a_file_where_a_folder_should_be_is_an_error(photo, tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(ProlipError):
        place(photo, tmp_path / "out", "copy")


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
    with pytest.raises(InputError):
        place(tmp_path / "gone.jpg", tmp_path / "out", "copy")


def test_every_name_becomes_a_folder_of_its_own(tmp_path):
    names = ["cat", "Cat", "a/b", "a\\b", "..", ".", "", "CON", "nul.txt", "x" * 300, "ü" * 150, "end. "]
    names += ["a\nb", ".hidden", "<script>", "COM\u00b9", "con .x", "caf\u00e9", "cafe\u0301", "犬"]
    found = folder_names(names)
    assert len({name.casefold() for name in found}) == len(names)
    for name in found:
        (tmp_path / name).mkdir()  # the file system takes it, and it leads nowhere else
        assert (tmp_path / name).resolve().parent == tmp_path.resolve()
        assert not name.startswith(".")
        assert not set(name) & set('<>:"/\\|?*\n')
    assert found[0] == "cat"
    assert found[-1] == "犬"
