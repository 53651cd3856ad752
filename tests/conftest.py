import importlib.util
import os
import sys

import pytest
from hypothesis import settings

from pictures import COLOURS, blotch

# What needs torch stands in full/, and is left out where there is none.
collect_ignore = [] if importlib.util.find_spec("torch") else ["full"]

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Every test process keeps its own features, far from the user's."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["PROLIP_CACHE"] = str(folder)
    return folder


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
    from prolip.api import FewShotClassifier

    clf = FewShotClassifier(offline, lam=0.3, store=False)
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
