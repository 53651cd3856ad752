"""What users do, on systems that are not this one: no fcntl, folders that cannot be opened, open files that
cannot be renamed or removed, file systems that ignore case. Functions that refuse as such a system does stand
in for it; a file system that ignores case is mounted where that can be done."""

import builtins
import ctypes
import errno
import io
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import unicodedata
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import filelock
import numpy as np
import pytest

from prolip.app import edits
from prolip.app.journal import Journal
from prolip.app.project import Project
from prolip.core import ProlipError, UsageError
from prolip.features import store
from prolip.features.decoder_limits import IMAGE_MEMORY
from prolip.io import files, locks, writing
from prolip.io.appending import appending
from prolip.io.locks import MARK, LockedError, locked

# Systems


def patch_paths(monkeypatch, names, wrap):
    """Replace functions of `os` that take paths, for `pathlib` and `shutil` as well."""
    for name in names:
        if hasattr(os, name):
            monkeypatch.setattr(os, name, wrap(getattr(os, name)))
    for name in ("rename", "replace"):  # Python 3.10's pathlib has functions of its own
        monkeypatch.setattr(Path, name, lambda self, target, name=name: getattr(os, name)(self, target))
    monkeypatch.setattr(shutil, "_use_fd_functions", False)


def without_fcntl(monkeypatch, root):
    """Only the presence of a file is a lock."""
    monkeypatch.setattr(filelock, "FileLock", filelock.SoftFileLock)


def without_folder_handles(monkeypatch, root):
    def refuse(real):
        def opened(path, *arguments, **named):
            if Path(path).is_dir():
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return real(path, *arguments, **named)

        return opened

    patch_paths(monkeypatch, ["open"], refuse)


def without_open_renames(monkeypatch, root):
    """A file that is open or mapped, and a folder that holds one, stays where it is."""
    if not Path("/proc/self/maps").exists():
        pytest.skip("what is open here cannot be listed")

    def in_use(path):
        path = str(Path(path).parent.resolve() / Path(path).name)
        found = [line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
        for handle in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # the list's own
                found.append(str(handle.readlink()))
        return any(name == path or name.startswith(f"{path}/") for name in found)

    def refuse(real):
        def changed(*paths, **named):
            if "dir_fd" not in named and any(in_use(os.fspath(path)) for path in paths):
                raise PermissionError(errno.EACCES, "The process cannot access the file", str(paths[0]))
            return real(*paths, **named)

        return changed

    patch_paths(monkeypatch, ["rename", "replace", "unlink", "remove", "rmdir"], refuse)
    monkeypatch.setattr(Path, "unlink", unlink)
    monkeypatch.setattr(locks, "REMOVES_OPEN_FILES", False)


def unlink(path, missing_ok=False):
    try:
        os.unlink(path)  # noqa: PTH108 - the one that refuses
    except FileNotFoundError:
        if not missing_ok:
            raise


def ignoring_case(monkeypatch, root):
    """As macOS does it: a name keeps its spelling, and is found by every other."""
    listdir = os.listdir

    def key(name):
        return unicodedata.normalize("NFD", name).casefold()

    def spelled(path):
        if isinstance(path, (int, bytes)) or not os.fspath(path).startswith(f"{root}/"):
            return path
        found = str(root)
        for name in os.fspath(path)[len(found) + 1 :].split("/"):
            try:
                there = {key(entry): entry for entry in listdir(found)}
            except OSError:
                there = {}
            found = f"{found}/{there.get(key(name), name)}"
        return found

    def wrap(real):
        def called(*arguments, **named):
            paths = 2 if real.__name__ in ("rename", "replace", "link", "symlink") else 1
            return real(*map(spelled, arguments[:paths]), *arguments[paths:], **named)

        return called

    names = (
        "stat lstat open mkdir rmdir unlink remove rename replace link symlink listdir scandir access chmod"
    )
    patch_paths(monkeypatch, f"{names} utime readlink truncate".split(), wrap)
    opened = wrap(io.open)
    monkeypatch.setattr(io, "open", opened)
    monkeypatch.setattr(builtins, "open", opened)
    monkeypatch.setattr(sqlite3, "connect", wrap(sqlite3.connect))
    if not (3, 11) <= sys.version_info < (3, 13):
        pytest.skip("pathlib has functions of its own in other versions of Python")


@contextmanager
def fat(folder):
    """A real file system without case, links, permissions and inodes."""
    make, image = shutil.which("mkfs.vfat"), folder / "fat.img"
    if make is None or shutil.which("mount") is None:
        pytest.skip("mkfs.vfat is not installed")
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run([make, image], check=True, capture_output=True)
    (folder / "fat").mkdir()
    mounted = subprocess.run(["mount", "-o", "loop", image, folder / "fat"], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("this user mounts nothing here")
    try:
        yield folder / "fat"
    finally:
        subprocess.run(["umount", folder / "fat"], check=True)


SYSTEMS = [without_fcntl, without_folder_handles, without_open_renames, ignoring_case, fat]


def swapped(path):
    return path.with_name(path.stem.swapcase() + path.suffix)


@pytest.fixture
def system(request, monkeypatch, tmp_path):
    """The folder of a system, and how it may spell a path otherwise than it was made."""
    if request.param is fat:
        with fat(tmp_path) as root:
            yield SimpleNamespace(root=root, other=swapped)
        return
    root = (tmp_path / "system").resolve()
    root.mkdir()
    with monkeypatch.context() as patch:
        request.param(patch, root)
        yield SimpleNamespace(root=root, other=swapped if request.param is ignoring_case else Path)


def test_what_stands_in_for_a_system_refuses_as_it_does(tmp_path):
    for name in ("open.txt", "folder/open.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    with pytest.MonkeyPatch.context() as patch:
        without_folder_handles(patch, tmp_path)
        with pytest.raises(PermissionError):
            os.open(tmp_path / "folder", os.O_RDONLY)
    with pytest.MonkeyPatch.context() as patch, (tmp_path / "folder/open.txt").open():
        without_open_renames(patch, tmp_path)
        for refused in (tmp_path / "folder/open.txt", tmp_path / "folder"):
            with pytest.raises(PermissionError):
                refused.rename(tmp_path / "other")
        with pytest.raises(PermissionError):
            (tmp_path / "folder/open.txt").unlink()
        (tmp_path / "open.txt").rename(tmp_path / "closed.txt")
    with pytest.MonkeyPatch.context() as patch:
        ignoring_case(patch, tmp_path)
        assert (tmp_path / "Folder" / "OPEN.txt").samefile(tmp_path / "folder" / "open.txt")
        assert [path.name for path in (tmp_path / "FOLDER").iterdir()] == ["open.txt"]


# What users do


@pytest.fixture
def run(prolip):
    """A command that must succeed."""

    def run(*arguments):
        code, out, err = prolip(*arguments)
        assert code == 0, err
        return out

    return run


@pytest.fixture
def work(system, photos, colour_model):
    """A folder of that system with a saved model and a few photos."""
    shutil.copytree(photos / "test", system.root / "Photos")
    colour_model.save(system.root / "Model")
    return system


def fit(run, work):
    for options in ([], ["--force"]):
        run(
            "fit",
            work.other(work.root / "Photos"),
            "-o",
            work.root / "New",
            "--method",
            "prolip",
            "--lam",
            "1",
            *options,
        )
        run("predict", work.other(work.root / "New"), work.root / "Photos" / "red")


def predict_out(run, work):
    out = work.root / "Answers.csv"
    for count in (4, 12):
        source = work.root / "Photos" if count == 12 else work.root / "Photos" / "red"
        run("predict", work.root / "Model", source, "--out", work.other(out))
        out = work.other(out)
        assert out.read_bytes().count(b"\n") == count + 1
    assert b"\r" not in out.read_bytes()


def add(run, work):
    shutil.copytree(work.root / "Photos" / "red", work.root / "More" / "crimson")
    run("add", work.other(work.root / "Model"), work.root / "More")
    assert "crimson" in run("predict", work.root / "Model", work.root / "Photos" / "red")


def export(run, work):
    out = work.root / "Adapter"
    run("export", work.root / "Model", "--to", "onnx", "-o", out)
    (out / "mine.txt").write_text("mine")
    before = {path.name for path in out.iterdir()}
    run("export", work.root / "Model", "--to", "onnx", "-o", work.other(out), "--force")
    assert {path.name for path in out.iterdir()} == before
    assert (out / "mine.txt").read_text() == "mine"


def embed(run, work):
    run("embed", work.root / "Photos" / "red", "-o", work.root / "Store")
    run("embed", work.root / "Photos", "-o", work.other(work.root / "Store"))
    run("reproject", work.root / "Store", work.root / "Model", "-o", work.root / "rows.npy")
    run("reproject", work.root / "Store", work.root / "Model", "-o", work.root / "rows.npy")
    assert len(np.load(work.root / "rows.npy")) == 12


def app_project(run, work):
    folder = work.root / "Project"
    with Project.open(folder) as project:
        project.commit(lambda state: edits.add_class(state, "cat"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Journal, "is_long", True)
            image, _ = project.add_image(b"content", b"small", "x.jpg", "1")
        project.commit(lambda state: edits.add_class(state, "dog"))
        with pytest.raises(LockedError), Project.open(work.other(folder)):
            pass
        state = project.state
    with Project.open(work.other(folder)) as again:
        assert again.state == state
        assert again.image(image).read_bytes() == b"content"


def sort_by_moving(run, work):
    contents = {path.read_bytes() for path in (work.root / "Photos").rglob("*.png")}
    run("predict", work.root / "Model", work.root / "Photos" / "red", "--sort-into", work.root / "Out")
    run("predict", work.root / "Model", work.root / "Photos", "--sort-into", work.root / "Out", "--move")
    assert {path.read_bytes() for path in (work.root / "Out").rglob("*.png")} == contents
    assert not list((work.root / "Photos").rglob("*.png"))


def quarantine(run, work):
    before = set(work.root.rglob("*.png"))
    shutil.copy(work.root / "Photos" / "red" / "0.png", work.root / "Photos" / "red" / "again.png")
    run("check", work.root / "Photos", "--move", work.root / "Found", "--only", "copy")
    assert set((work.root / "Photos").rglob("*.png")) < {
        *before,
        work.root / "Photos/red/again.png",
    }
    run("check", "--undo", work.other(work.root / "Found"), "--yes")
    assert set(work.root.rglob("*.png")) == {*before, work.root / "Photos/red/again.png"}


def store_features(run, work):
    for folder in (work.root / "Space", work.other(work.root / "Space")):
        space = store.Space(store.FeatureStore(folder), "d", 4)
        for i in range(7):
            space.add([bytes([i]) * 32], [0], np.full((1, 4), i))
        assert all(space.get(bytes([i]) * 32, 0)[0] == i for i in range(7))
    assert len(list((work.root / "Space").glob("*.sqlite"))) == 1


JOBS = [fit, predict_out, add, export, embed, app_project, sort_by_moving, quarantine, store_features]


@pytest.mark.parametrize("system", SYSTEMS, indirect=True)
@pytest.mark.parametrize("job", JOBS)
def test_what_users_do_works_on_every_system(run, work, job, system):
    job(run, work)
    assert not [path for path in system.root.rglob("*") if path.name.startswith(MARK)]


@pytest.mark.parametrize("system", [ignoring_case, fat], indirect=True)
def test_a_folder_is_not_sorted_into_itself_spelled_otherwise(prolip, work):
    before = sorted(path.read_bytes() for path in (work.root / "Photos").rglob("*.png"))
    code, _, err = prolip(
        "predict", work.root / "Model", work.root / "Photos", "--sort-into", work.root / "pHOTOS", "--move"
    )
    assert code == 2, err
    code, _, err = prolip("check", work.root / "Photos", "--move", work.root / "pHOTOS" / "found")
    assert code in (0, 2), err
    assert sorted(path.read_bytes() for path in (work.root / "Photos").rglob("*.png")) == before


@pytest.mark.parametrize("system", [ignoring_case, fat], indirect=True)
def test_one_file_has_one_writer_however_it_is_spelled(system):
    names = ("Answers.csv", "aNSWERS.CSV")
    with appending(system.root / names[0]) as lines:
        lines.write("one\n")
        with pytest.raises(LockedError), appending(system.root / names[1]):
            pass
    with appending(system.root / names[1]) as lines:
        lines.write("two\n")
    assert (system.root / names[0]).read_text() == "one\ntwo\n"


# Locks

WITHOUT_FCNTL = "import sys, warnings; sys.modules['fcntl'] = None; warnings.simplefilter('ignore')\n"
HOLD = (
    "import sys, time; from pathlib import Path\n"
    "from prolip.io.appending import appending\n"
    "from prolip.io.writing import temporary\n"
    "with globals()[sys.argv[1]](Path(sys.argv[2])) as made:\n"
    "    print('held', flush=True)\n"
    "    time.sleep(60)"
)


@contextmanager
def held(kind, path):
    """A process without fcntl that holds a file to append to, or a temporary name."""
    command = [sys.executable, "-c", WITHOUT_FCNTL + HOLD, kind, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_without_fcntl_a_second_run_is_refused_until_the_first_ends(colour_model, photos, tmp_path):
    colour_model.save(tmp_path / "model")
    out = tmp_path / "answers.csv"
    command = [sys.executable, "-c", f"{WITHOUT_FCNTL}from prolip.__main__ import main; main()"]
    command += ["predict", tmp_path / "model", photos / "test", "--out", out]
    with held("appending", out):
        second = subprocess.run(command, capture_output=True, text=True, check=False)
        assert second.returncode == UsageError.exit_code
        assert "another process" in second.stderr
    third = subprocess.run(command, capture_output=True, text=True, check=False)  # the first was killed
    assert third.returncode == 0, third.stderr
    assert len(out.read_text().splitlines()) == 13


def test_without_fcntl_what_a_living_process_writes_is_not_swept(tmp_path, monkeypatch):
    without_fcntl(monkeypatch, tmp_path)
    with held("temporary", tmp_path):
        (made,) = [path for path in tmp_path.iterdir() if not path.suffix]
        os.utime(made, (1, 1))
        writing.sweep(tmp_path)
        assert made.exists()
    for _ in range(2):  # some versions of filelock void a lock first, and take it the next time
        writing.sweep(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
@pytest.mark.filterwarnings("ignore:flock not supported")
def test_a_file_system_without_locks_has_one_writer_too(tmp_path, monkeypatch, code):
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    path = tmp_path / "a.csv"
    with appending(path) as lines:
        lines.write("one\n")
        with pytest.raises(LockedError), appending(path):
            pass
    with appending(path) as lines:
        lines.write("two\n")
    assert path.read_text() == "one\ntwo\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.csv"]


def test_writers_take_turns(tmp_path):
    """A lock file that is removed at the end never lets two in."""
    inside, most = [], []

    def work():
        for _ in range(20):
            with locked(tmp_path / "x.lock", tmp_path / "x", timeout=30):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 80
    assert not list(tmp_path.iterdir())


# Calls that other systems answer otherwise


def as_system(monkeypatch, module, platform):
    monkeypatch.setattr(module, "sys", SimpleNamespace(platform=platform))


def test_on_macos_content_reaches_the_disk(tmp_path, monkeypatch):
    fcntl, asked = pytest.importorskip("fcntl"), []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda handle, command: asked.append(command))
    as_system(monkeypatch, files, "darwin")
    with appending(tmp_path / "a") as lines:
        lines.write("a\n", sync=True)
    assert asked == [51]


@pytest.mark.parametrize("name", ["con", "NUL.csv", "a:b.csv", "what?", "dot.", "com1/a.csv"])
def test_on_windows_names_that_it_takes_otherwise_are_refused(tmp_path, monkeypatch, name):
    writing.check_place(tmp_path / name)
    as_system(monkeypatch, writing, "win32")
    with pytest.raises(ProlipError):
        writing.check_place(tmp_path / name)
    writing.check_place(tmp_path / "console.csv")


def test_on_windows_a_rename_waits_for_programs_that_read(tmp_path, monkeypatch):
    calls, real = [], Path.replace

    def busy(self, target):
        calls.append(target)
        if len(calls) < 3:
            raise PermissionError(errno.EACCES, "The process cannot access the file")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", busy)
    (tmp_path / "a").write_text("a")
    with pytest.raises(PermissionError):
        writing.rename(tmp_path / "a", tmp_path / "b")
    as_system(monkeypatch, writing, "win32")
    monkeypatch.setattr(writing, "time", SimpleNamespace(sleep=lambda seconds: None))
    writing.rename(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_text() == "a"


def test_on_windows_a_port_has_one_server(monkeypatch):
    from prolip.app.http_server import bind

    monkeypatch.setattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_KEEPALIVE, raising=False)
    with bind("127.0.0.1", 0) as listening:
        assert not listening.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_on_windows_a_lost_interrupt_does_not_end_the_process(monkeypatch):
    from prolip import __main__ as command

    sent = threading.Event()
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("os.kill ends a process on Windows"))
    monkeypatch.setattr(signal, "raise_signal", lambda number: sent.set())
    as_system(monkeypatch, command, "win32")
    command._interrupt_again(SimpleNamespace(exc_type=KeyboardInterrupt))
    assert sent.wait(5)


def test_without_a_c_library_folders_are_replaced_and_memory_is_freed(tmp_path, monkeypatch):
    def refuse(name, *_, **__):
        raise TypeError("CDLL takes no None on Windows")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    with IMAGE_MEMORY.hold(100 * 10**6):
        pass
    for text in ("old", "new"):
        writing.write_folder(
            tmp_path / "out", lambda made, text=text: (made / "a").write_text(text), replace=True
        )
    assert (tmp_path / "out" / "a").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_cache_folder_is_the_one_of_the_system_unless_it_is_set(tmp_path, monkeypatch):
    monkeypatch.delenv("PROLIP_CACHE")
    if sys.platform.startswith("linux"):
        monkeypatch.setenv("HOME", str(tmp_path))
        assert files.cache_dir() == tmp_path / ".cache" / "prolip"
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert files.cache_dir() == tmp_path / "xdg" / "prolip"
    assert files.cache_dir().is_absolute()
    monkeypatch.setenv("PROLIP_CACHE", str(tmp_path / "mine"))
    assert files.cache_dir() == tmp_path / "mine"
    for wrong in ("", "~nosuchuser/cache"):
        monkeypatch.setenv("PROLIP_CACHE", wrong)
        with pytest.raises(UsageError):
            files.cache_dir()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the home is found otherwise here")
def test_a_user_without_a_home_is_asked_for_a_cache_folder(monkeypatch):
    monkeypatch.delenv("PROLIP_CACHE")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", lambda user: {}[user])
    with pytest.raises(UsageError):
        files.cache_dir()


def test_on_windows_a_file_state_has_the_time_of_change(tmp_path, monkeypatch):
    """And not that of creation, which is what `st_ctime` says there."""
    (tmp_path / "a").write_text("a")

    def answer(handle, kind, times, size):
        times[3] = 116_444_736_000_000_000 + 7
        return 1

    system = SimpleNamespace(kernel32=SimpleNamespace(GetFileInformationByHandleEx=answer))
    monkeypatch.setattr(ctypes, "windll", system, raising=False)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(get_osfhandle=lambda handle: handle))
    as_system(monkeypatch, files, "win32")
    found = (tmp_path / "a").stat()
    assert files.file_state(tmp_path / "a") == (1, found.st_mtime_ns, 700, found.st_ino)
