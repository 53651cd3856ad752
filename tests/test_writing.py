"""Whole or not at all, one writer at a time, and nothing of the user's touched."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from prolip.core import ProlipError, UsageError, writing
from prolip.core.writing import MARK, appending, folder_lock, write_atomic, write_folder


def fill(files):
    def write(folder):
        for name, text in files.items():
            (folder / name).write_text(text)

    return write


def content(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def marked(folder):
    return [path.name for path in folder.iterdir() if path.name.startswith(MARK)]


def test_a_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fails(made):
        made.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(ProlipError, match="no space left"):
        write_atomic(path, fails)
    assert content(tmp_path) == {"a.txt": "old"}


def test_a_new_folder_appears_whole(tmp_path):
    seen = []

    def watch(made):
        fill({"a": "1", "b": "2"})(made)
        seen.append((tmp_path / "out").exists())

    write_folder(tmp_path / "out", watch)
    assert seen == [False]
    assert content(tmp_path / "out") == {"a": "1", "b": "2"}
    assert not marked(tmp_path)


def test_files_of_the_same_names_are_replaced_together_and_others_stay(tmp_path):
    out = tmp_path / "out"
    (out / "deep").mkdir(parents=True)
    for name in ("a", "b", "mine", "deep/er"):
        (out / name).write_text("old")
    (out / "link").symlink_to("mine")
    moments = []

    def fills(made):
        fill({"a": "new", "b": "new"})(made)
        moments.append(content_of(out))

    def content_of(folder):
        return [(folder / name).read_text() for name in ("a", "b", "mine", "deep/er")]

    write_folder(out, fills, replace=True)
    assert moments == [["old"] * 4]
    assert content_of(out) == ["new", "new", "old", "old"]
    assert (out / "link").is_symlink()
    assert not marked(tmp_path)


def test_what_arrives_between_the_two_steps_is_kept(tmp_path, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    (out / "a").write_text("old")
    exchange = writing._exchange

    def late(a, b):
        (out / "late").write_text("mine")
        exchange(a, b)

    monkeypatch.setattr(writing, "_exchange", late)
    write_folder(out, fill({"a": "new"}), replace=True)
    assert content(out) == {"a": "new", "late": "mine"}


def test_without_an_exchange_of_names_there_are_two_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(writing.ctypes, "CDLL", lambda *_, **__: object())
    out = tmp_path / "out"
    write_folder(out, fill({"a": "old", "b": "old"}))
    write_folder(out, fill({"a": "new"}), replace=True)
    assert content(out) == {"a": "new", "b": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_a_killed_writer_left_is_swept(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from prolip.core.writing import write_atomic\n"
        "write_atomic(Path(sys.argv[1]) / 'x', lambda made: os.kill(os.getpid(), 9))"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path], check=False).returncode == -9
    (left,) = marked(tmp_path)
    write_atomic(tmp_path / "y", lambda made: made.write_text("y"))
    assert marked(tmp_path) == [left]  # it could be a writer's who has just begun
    os.utime(tmp_path / left, (1, 1))
    (tmp_path / f"{MARK}folder").mkdir()
    os.utime(tmp_path / f"{MARK}folder", (1, 1))
    write_atomic(tmp_path / "y", lambda made: made.write_text("z"))
    assert content(tmp_path) == {"y": "z"}


def test_what_is_being_written_is_not_swept(tmp_path):
    with writing.temporary(tmp_path) as made:
        os.utime(made, (1, 1))
        writing.sweep(tmp_path)
        assert made.exists()
    assert not made.exists()


def test_links_are_followed_unless_they_lead_nowhere(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "latest").symlink_to("real")
    write_folder(tmp_path / "latest", fill({"a": "1"}))
    assert (tmp_path / "latest").is_symlink()
    assert content(tmp_path / "real") == {"a": "1"}
    (tmp_path / "nowhere").symlink_to("gone")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("nowhere", "loop"):
        with pytest.raises(UsageError):
            write_folder(tmp_path / name, fill({}))
        with pytest.raises(UsageError):
            write_atomic(tmp_path / name, lambda made: None)


@pytest.mark.parametrize("name", ["x" * 300, "~nosuchuser/x", "file/inside", "a\0b"])
def test_places_that_cannot_be_written_are_told(tmp_path, name):
    (tmp_path / "file").write_text("")
    path = Path(name) if name.startswith("~") else tmp_path / name
    for write in (lambda: write_atomic(path, lambda made: None), lambda: write_folder(path, fill({}))):
        with pytest.raises(ProlipError):
            write()


def test_the_folder_one_stands_in_is_not_swapped(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="name a folder inside"):
        write_folder(Path(), fill({"a": "1"}), replace=True)


HOLD = (
    "import sys, time; from pathlib import Path; from prolip.core.writing import appending, folder_lock\n"
    "with globals()[sys.argv[1]](Path(sys.argv[2])):\n"
    "    print('held', flush=True)\n"
    "    time.sleep(float(sys.argv[3]))"
)


@contextmanager
def held(kind, path, seconds):
    """Another process that holds a lock for a while, unless it is killed."""
    command = [sys.executable, "-c", HOLD, kind, path, str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_a_second_writer_is_told_of_the_first(tmp_path):
    path = tmp_path / "answers.csv"
    with (
        held("appending", path, 60) as first,
        pytest.raises(UsageError, match=f"process {first.pid}|another process"),
        appending(path),
    ):
        pass
    with appending(path) as file:  # no lock outlives its process
        file.write("a\n")
    assert path.read_text() == "a\n"


def test_a_second_writer_of_a_folder_waits(tmp_path):
    with held("folder_lock", tmp_path, 0.5):
        began = time.monotonic()
        with folder_lock(tmp_path):
            assert time.monotonic() - began > 0.2


def test_half_a_line_is_cut_off_before_more_are_added(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("one\nha")
    with appending(path) as file:
        assert file.tell() == 4
        file.write("two\n")
    assert path.read_text() == "one\ntwo\n"
