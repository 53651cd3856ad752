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
from prolip.io.writing import MARK, WriteError, check_place, write_atomic, write_folder, write_lock


def fill(files):
    def write(folder):
        for name, text in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)

    return write


def content(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()
    }


def fails(made):
    made.write_text("half")
    raise OSError(28, "No space left on device")


def test_a_failure_leaves_what_was_there(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    write_folder(tmp_path / "out", fill({"a": "old"}))
    with pytest.raises(WriteError):
        write_atomic(tmp_path / "a.txt", fails)
    with pytest.raises(WriteError):
        write_folder(tmp_path / "out", lambda made: fails(made / "a"), replace=True)
    assert content(tmp_path) == {"a.txt": "old", "out/a": "old"}


def test_a_new_folder_appears_whole(tmp_path):
    seen = []

    def watch(made):
        fill({"a": "1", "b": "2"})(made)
        seen.append((tmp_path / "out").exists())

    write_folder(tmp_path / "out", watch)
    assert seen == [False]
    assert content(tmp_path) == {"out/a": "1", "out/b": "2"}
    with pytest.raises(UsageError):
        write_folder(tmp_path / "out", fill({"c": "3"}))


def test_files_of_the_same_names_are_replaced_when_all_are_complete_and_others_stay(tmp_path):
    out = tmp_path / "out"
    write_folder(out, fill({"a": "old", "mine": "old", "deep/er": "old", "deep/mine": "old"}))
    (out / "link").symlink_to("mine")
    before, moments = content(out), []

    def fills(made):
        fill({"a": "new", "deep/er": "new", "deeper/b": "new"})(made)
        moments.append({name: (out / name).read_text() for name in before})

    write_folder(out, fills, replace=True)
    assert moments == [before]
    assert content(out) == {**before, "a": "new", "deep/er": "new", "deeper/b": "new"}
    assert (out / "link").is_symlink()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_links_are_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "latest").symlink_to("real")
    write_folder(tmp_path / "latest", fill({"a": "1"}))
    (tmp_path / "link").symlink_to("real/a")
    write_atomic(tmp_path / "link", lambda made: made.write_text("2"))
    assert (tmp_path / "latest").is_symlink()
    assert (tmp_path / "link").is_symlink()
    assert content(tmp_path / "real") == {"a": "2"}


@pytest.mark.parametrize("name", ["x" * 300, "~nosuchuser/x", "file/inside", "a\0b", "d/" * 3000])
def test_places_that_cannot_be_written_are_refused_before_any_work(tmp_path, name):
    (tmp_path / "file").write_text("")
    path = Path(name) if name.startswith("~") else tmp_path / name
    for write in (lambda: write_atomic(path, fails), lambda: write_folder(path, fails)):
        with pytest.raises(ProlipError):
            write()
    with pytest.raises(ProlipError):
        check_place(path)


def test_the_working_folder_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("")
    monkeypatch.chdir(tmp_path)
    write_folder(Path(), fill({"a": "1"}), replace=True)
    assert content(Path()) == {"a": "1"}


HOLD = (
    "import sys, time; from pathlib import Path; from prolip.io.writing import write_lock\n"
    "with write_lock(Path(sys.argv[1])):\n"
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


def test_a_second_writer_waits_or_is_refused_and_a_lock_ends_with_its_process(tmp_path):
    with held(tmp_path, 0.5):
        began = time.monotonic()
        with write_lock(tmp_path):
            assert time.monotonic() - began > 0.2
    with held(tmp_path, 60), pytest.raises(UsageError), write_lock(tmp_path, timeout=0.1):
        pass
    with write_lock(tmp_path, timeout=5):
        assert list(tmp_path.iterdir()) == []


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_written_over_keeps_its_permissions(tmp_path):
    out = tmp_path / "out"
    write_folder(out, fill({"a": "old", "b": "old"}))
    for path in (out / "a", out / "b", out):
        path.chmod(0o700 if path == out else 0o600)
    write_atomic(out / "a", lambda made: made.write_text("new"))
    assert mode(out / "a") == 0o600
    write_folder(out, fill({"a": "newer", "b": "new", "c": "new"}), replace=True)
    assert [mode(path) for path in (out, out / "a", out / "b")] == [0o700, 0o600, 0o600]


def test_new_files_have_the_usual_permissions(tmp_path):
    def private(made):
        (made / "b").touch(0o600)  # as some libraries write

    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "a", lambda made: made.write_text("a"))
        write_folder(tmp_path / "out", private)
    finally:
        os.umask(before)
    assert [mode(tmp_path / name) for name in ("a", "out", "out/b")] == [0o640, 0o750, 0o640]


def test_a_killed_writer_leaves_the_old_file(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from prolip.io.writing import write_atomic\n"
        "write_atomic(Path(sys.argv[1]), lambda made: (made.write_text('half'), os.kill(os.getpid(), 9)))"
    )
    (tmp_path / "x").write_text("old")
    assert subprocess.run([sys.executable, "-c", code, tmp_path / "x"], check=False).returncode == -9
    assert (tmp_path / "x").read_text() == "old"
    assert sum(path.name.startswith(MARK) for path in tmp_path.iterdir()) == 1
