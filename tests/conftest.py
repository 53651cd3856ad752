"""A world for each test: its own home, cache, configuration, working folder; no network but loopback."""

import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from pictures import COLOURS, blotch

# What needs torch stands in full/, and is left out where there is none; pages/ needs a browser.
collect_ignore = [] if importlib.util.find_spec("torch") else ["full"]
EXTRAS = ("full", "pages")

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")

SANDBOX = Path(__file__).parent / "sandbox"
OURS = (
    "PROLIP_",
    "_PROLIP_",
    "HF_",
    "TRANSFORMERS_",
    "XDG_",
    "RAY_",
    "MPL",
)  # prefixes of settings that tests own
HOMES = ("HOME", "USERPROFILE", "LOCALAPPDATA", "APPDATA")
TRUE_HOME = pytest.StashKey[tuple[Path, set[tuple[str, ...]]]]()
SESSION_HOME = pytest.StashKey[Path]()


def pytest_configure(config):
    """Leave the home of whoever runs the tests; processes of pytest-xdist start from here and inherit it."""
    if hasattr(config, "workerinput"):
        return
    home = Path.home()
    config.stash[TRUE_HOME] = home, _entries(home)
    own = Path(tempfile.mkdtemp(prefix="prolip-tests-"))
    config.stash[SESSION_HOME] = own
    for name in [name for name in os.environ if name.startswith(OURS)]:
        del os.environ[name]
    for name in HOMES:
        os.environ[name] = str(own)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(own / "hypothesis")
    os.environ["MPLCONFIGDIR"] = str(own / "matplotlib")
    os.environ["PROLIP_CACHE"] = str(own / "cache")
    os.environ["PROLIP_TEST_SANDBOX"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"  # for tests that import the hub's library before prolip
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(SANDBOX), os.environ.get("PYTHONPATH")]))
    sys.path.insert(0, str(SANDBOX))
    sys.modules.pop("sitecustomize", None)
    importlib.import_module("sitecustomize")


def pytest_collection_modifyitems(config, items):
    """Mark what runs only with the extras; leave out what is slow unless `-m` names it."""
    for item in items:
        if item.path.parent.name in EXTRAS:
            item.add_marker("extras")
    if "slow" not in config.getoption("markexpr"):
        items[:] = [item for item in items if item.get_closest_marker("slow") is None]


def pytest_sessionfinish(session):
    """Fail the run if the true home has other entries than before."""
    if TRUE_HOME not in session.config.stash:
        return
    home, before = session.config.stash[TRUE_HOME]
    if changed := sorted(before ^ _entries(home)):
        sys.stderr.write(f"\nThe tests changed {home}: {changed[:10]}\n")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config):
    """Remove the home of the run."""
    if SESSION_HOME in config.stash:
        shutil.rmtree(config.stash[SESSION_HOME], ignore_errors=True)


def _entries(home):
    """Entries of a home two levels deep, and everything in our own folders with size and time."""
    found = set()
    for pattern in ("*", "*/*"):
        found |= {(str(path.relative_to(home)),) for path in home.glob(pattern)}
    for ours in (home / ".cache" / "prolip", home / "prolip-project"):
        for path in ours.rglob("*"):
            about = path.lstat()
            found.add((str(path.relative_to(home)), str(about.st_size), str(about.st_mtime_ns)))
    return found


@pytest.fixture(autouse=True)
def world(monkeypatch):
    """A home, an empty working folder, and a cache that has the encoder's derived weights, for one test."""
    derived = Path(os.environ["PROLIP_CACHE"])
    world = Path(tempfile.mkdtemp(dir=derived.parent))
    for name in ("home", "work", "cache"):
        (world / name).mkdir()
    for weights in derived.glob("*.safetensors"):
        shutil.copy(weights, world / "cache")
    for name in HOMES:
        monkeypatch.setenv(name, str(world / "home"))
    monkeypatch.setenv("PROLIP_CACHE", str(world / "cache"))
    monkeypatch.chdir(world / "work")
    attempts = sys.modules["sitecustomize"].attempts
    attempts.clear()
    yield world
    monkeypatch.undo()  # leave the working folder before it goes
    shutil.rmtree(world, ignore_errors=True)
    assert attempts == [], "outside the sandbox"


@pytest.fixture
def cache(world):
    """The cache folder of one test."""
    return world / "cache"


@pytest.fixture(scope="session")
def offline():
    """The offline encoder, loaded once."""
    from prolip.encoders import load

    return load("offline", "cpu")


@pytest.fixture
def photos(tmp_path):
    """A folder with train/ and test/, three classes, six and four pictures each."""
    for split, count, offset in (("train", 6, 0), ("test", 4, 100)):
        for k, (name, colour) in enumerate(COLOURS.items()):
            folder = tmp_path / "photos" / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                blotch(colour, offset + 10 * k + i).save(folder / f"{i}.png")
    return tmp_path / "photos"


@pytest.fixture(scope="module")
def colour_model(offline):
    """A model of the three colours, four pictures each that were never on disk."""
    from prolip import FewShotClassifier

    clf = FewShotClassifier(offline, "prolip", options={"lam": 0.3}, store=False)
    images = [blotch(colour, 10 * k + i) for k, colour in enumerate(COLOURS.values()) for i in range(4)]
    return clf.fit(images, [name for name in COLOURS for _ in range(4)])


@pytest.fixture
def prolip(monkeypatch, capsys):
    """The command line, without a process of its own: exit code, standard output, standard error."""
    from prolip.cli import main

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["prolip", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return run
