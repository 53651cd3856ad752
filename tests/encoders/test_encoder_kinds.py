"""Encoders by name, and those that other packages add."""

from importlib import metadata

import numpy as np
import pytest

import prolip
from prolip import encoders
from prolip.core import Head, ModelError
from prolip.encoders import Encoder, Preprocess
from prolip.encoders.base import name_in_prompt


class MeanColour(Encoder):
    """Features are mean colours."""

    fingerprint, scale, device = "mean-colour", 10.0, "cpu"
    head = text_head = Head.identity(3)
    preprocess = Preprocess(8, (0, 0, 0), (1, 1, 1))

    def __init__(self, rest, device):
        self.name = f"colours:{rest}"

    def encode(self, pixels):
        return pixels.mean(axis=(1, 2)).astype(np.float32) - 100

    def encode_text(self, prompts):
        return np.array([[1 + len(prompt), 1, 1] for prompt in prompts], np.float32)


@pytest.fixture
def installed(monkeypatch):
    """Install entry points, name: value."""

    def install(**points):
        found = [metadata.EntryPoint(name, value, encoders.GROUP) for name, value in points.items()]
        monkeypatch.setattr(metadata, "entry_points", lambda group: found)
        encoders._entry_points.cache_clear()

    yield install
    encoders._entry_points.cache_clear()


def test_a_package_adds_a_kind(installed, tmp_path):
    installed(colours=f"{__name__}:MeanColour")
    assert encoders.kinds()[-1] == "colours"
    assert encoders.load("colours:soft").name == "colours:soft"
    reds, blues = (np.zeros((4, 8, 8, 3), np.uint8) for _ in range(2))
    shades = 200 + np.arange(4)[:, None, None]
    reds[..., 0], blues[..., 2] = shades, shades
    clf = prolip.FewShotClassifier(model="colours:soft", store=False)
    clf.fit([*reds, *blues], ["red"] * 4 + ["blue"] * 4)
    assert clf.predict([blues[0]]).tolist() == ["blue"]


@pytest.mark.parametrize("value", ["no_such_module:load", f"{__name__}:nothing", "builtins:max"])
def test_a_kind_that_cannot_be_loaded_is_an_error(installed, value):
    installed(broken=value)
    with pytest.raises(ModelError):
        encoders.load("broken:x")


def test_a_kind_of_ours_is_not_replaced(installed):
    installed(offline=f"{__name__}:MeanColour")
    assert encoders.kinds().count("offline") == 1
    assert encoders.load("offline").name == "offline"


@pytest.mark.parametrize(
    ("template", "name", "prompt"),
    [
        ("a photo of a {}.", "long dress", "a photo of a long dress."),
        ("a photo of a {}.", "a long dress", "a photo of a long dress."),
        ("a bad photo of the {}.", "An old car", "a bad photo of the old car."),
        ("a photo of a person doing {}.", "the twist", "a photo of a person doing the twist."),
    ],
)
def test_a_prompt_has_one_article(template, name, prompt):
    assert template.format(name_in_prompt(template, name)) == prompt
