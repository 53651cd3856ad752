import os
import sys

import numpy as np
import pytest
import torch
from hypothesis import settings
from PIL import Image

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Every test process keeps its own features, far from the user's."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["PROLIP_CACHE"] = str(folder)
    torch.set_num_threads(1)
    return folder


@pytest.fixture(scope="session")
def offline():
    """The offline encoder, loaded once."""
    from prolip.encoders import load

    return load("offline", "cpu")


def blotch(colour, seed, size=48):
    """A picture of mostly one colour, no two alike."""
    rng = np.random.default_rng(seed)
    pixels = np.array(colour) + rng.normal(0, 25, (size, size, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


COLOURS = {"red": (200, 40, 40), "green": (40, 180, 40), "blue": (40, 40, 200)}


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

    clf = FewShotClassifier(lam=0.3, store=False)
    clf._encoder = offline
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
