"""Whole or not at all, one writer at a time, and nothing of the user's touched."""

import os
import stat
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from prolip.core import ProlipError, UsageError
from prolip.io.locks import MARK, folder_lock
from prolip.io.writing import WriteError, check_place, write_atomic, write_folder


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

    with pytest.raises(WriteError):
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


def test_an_interrupted_replacement_never_mixes_old_and_new_files(tmp_path, monkeypatch):
    out = tmp_path / "out"
    write_folder(out, fill({"a": "old", "b": "old", "mine": "old"}))

    def stop(old, new):
        raise KeyboardInterrupt

    monkeypatch.setattr("prolip.io.writing.rename", stop)
    with pytest.raises(KeyboardInterrupt):
        write_folder(out, fill({"a": "new", "b": "new"}), replace=True)
    assert content(out) == {"a": "old", "b": "old", "mine": "old"}


def test_a_folder_of_the_same_name_is_left_alone(tmp_path):
    (tmp_path / "out" / "b").mkdir(parents=True)
    (tmp_path / "out" / "a").write_text("old")
    with pytest.raises(WriteError):
        write_folder(tmp_path / "out", fill({"a": "new", "b": "new"}), replace=True)
    assert (tmp_path / "out" / "a").read_text() == "old"


def test_what_a_killed_writer_left_is_removed_after_a_day(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from prolip.io.writing import write_atomic\n"
        "write_atomic(Path(sys.argv[1]) / 'x', lambda made: os.kill(os.getpid(), 9))"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path], check=False).returncode == -9
    (left,) = marked(tmp_path)
    (tmp_path / f"{MARK}0123").mkdir()
    os.utime(tmp_path / f"{MARK}0123", (1, 1))
    write_atomic(tmp_path / "y", lambda made: made.write_text("z"))
    assert marked(tmp_path) == [left]  # it may be of a process that runs
    os.utime(tmp_path / left, (1, 1))
    write_atomic(tmp_path / "y", lambda made: made.write_text("z"))
    assert content(tmp_path) == {"y": "z"}


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


def test_the_working_folder_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("")
    monkeypatch.chdir(tmp_path)
    write_folder(Path(), fill({"a": "1"}), replace=True)
    assert content(Path()) == {"a": "1"}


HOLD = (
    "import sys, time; from pathlib import Path; from prolip.io.locks import folder_lock\n"
    "with folder_lock(Path(sys.argv[1])):\n"
    "    print('held', flush=True)\n"
    "    time.sleep(float(sys.argv[2]))"
)


@contextmanager
def held(path, seconds):
    """Another process that holds a lock for a while, unless it is killed."""
    command = [sys.executable, "-c", HOLD, path, str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_a_second_writer_of_a_folder_waits(tmp_path):
    with held(tmp_path, 0.5):
        began = time.monotonic()
        with folder_lock(tmp_path):
            assert time.monotonic() - began > 0.2


def test_a_second_writer_is_told_of_the_first_and_a_lock_ends_with_its_process(tmp_path):
    with held(tmp_path, 60), pytest.raises(UsageError), folder_lock(tmp_path, timeout=0.1):
        pass
    with folder_lock(tmp_path / "new"):
        assert (tmp_path / "new").is_dir()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def masked(monkeypatch):
    """A mask that leaves others out, and that nobody may set: it is of every thread."""
    before = os.umask(0o027)
    with monkeypatch.context() as patch:
        patch.delattr(os, "umask")
        yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_written_over_keeps_its_permissions(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    for name in ("a", "b"):
        (out / name).write_text("old")
        (out / name).chmod(0o600)
    out.chmod(0o700)
    write_atomic(out / "a", lambda made: made.write_text("new"))
    assert mode(out / "a") == 0o600
    write_folder(out, fill({"a": "newer", "b": "new", "c": "new"}), replace=True)
    assert content(out) == {"a": "newer", "b": "new", "c": "new"}
    assert [mode(path) for path in (out, out / "a", out / "b")] == [0o700, 0o600, 0o600]


def test_the_mask_is_kept_to_and_never_set(tmp_path, masked):
    write_atomic(tmp_path / "a", lambda made: made.write_text("a"))
    write_folder(tmp_path / "out", fill({"b": "b"}))
    assert [mode(tmp_path / name) for name in ("a", "out", "out/b")] == [0o640, 0o750, 0o640]
    assert not marked(tmp_path)
    assert not marked(tmp_path / "out")


@pytest.mark.parametrize("name", ["x" * 300, "~nosuchuser/x", "file/inside", "a\0b", "d/" * 3000, "nowhere"])
def test_a_place_is_refused_before_any_work(tmp_path, name):
    (tmp_path / "file").write_text("")
    (tmp_path / "nowhere").symlink_to("gone")
    with pytest.raises((WriteError, UsageError)):
        check_place(Path(name) if name.startswith("~") else tmp_path / name)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become another user")
def test_a_user_without_permission_is_told(tmp_path):
    tmp_path.chmod(0o755)
    code = (
        "import os, sys; from pathlib import Path; from prolip.io.writing import check_place\n"
        "from prolip.core import ProlipError\n"
        "os.setuid(65534)\n"
        "try: check_place(Path(sys.argv[1]))\n"
        "except ProlipError as error: print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", code, tmp_path / "x"], capture_output=True, text=True)
    assert "Permission denied" in ran.stdout


def test_a_folder_that_a_killed_process_left_under_another_name_has_its_name_again(tmp_path):
    (tmp_path / "out.old-1234abcd").mkdir()
    (tmp_path / "out.old-1234abcd" / "notes.txt").write_text("mine")
    write_folder(tmp_path / "out", lambda draft: (draft / "model").write_text("new"), replace=True)
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == {
        "model": "new",
        "notes.txt": "mine",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
