"""One declaration of each option: the constructor, its documentation, the commands and the saved model."""

import inspect

import numpy as np
import pytest

from odd_lines import commands
from pictures import COLOURS, blotch
from prolip import FewShotClassifier, Recipe
from prolip.api.recipe import OPTIONS
from prolip.core import UsageError

IMAGES = [blotch(colour, 700 + k) for k, colour in enumerate(COLOURS.values())]


def test_the_written_signature_is_that_of_the_declarations():
    written = inspect.signature(FewShotClassifier).parameters
    assert list(written)[:2] == ["model", "method"]
    assert {name: (each.default, each.annotation) for name, each in written.items()} == {
        name: (each.default, each.type.replace("tuple[str, ...]", "Sequence[str]"))
        for name, each in OPTIONS.items()
    }


def test_every_option_is_documented_and_has_its_place_on_the_command_line():
    text = inspect.cleandoc(FewShotClassifier.__doc__)
    names = {option.name.removeprefix("no_") for option in commands()[("fit",)].params}
    for name, each in OPTIONS.items():
        assert f"\n{name}\n    {each.metadata['option'].help[:20]}" in text
        assert name in names or name == "progress"
    assert Recipe().options is None


def test_lam_is_an_option_of_methods_that_have_it(offline):
    with pytest.raises(UsageError):
        FewShotClassifier(offline, "gda", options={"lam": 1.0}, store=False).fit(IMAGES, list(COLOURS))
    with pytest.raises(TypeError):
        FewShotClassifier(offline, "gda", lam=1.0)


def test_an_image_that_is_skipped_has_its_row(colour_model, offline, tmp_path):
    clf = FewShotClassifier(offline, store=False, skip_bad=True)
    clf.model_ = colour_model.model_
    images = [IMAGES[0], b"no image", IMAGES[1]]
    assert clf.predict(images).tolist() == ["red", None, "green"]
    assert np.isnan(clf.predict_proba(images)).all(axis=1).tolist() == [False, True, False]
    assert np.isnan(clf.transform(images)).all(axis=1).tolist() == [False, True, False]


def test_another_model_is_replaced_only_with_force(colour_model, tmp_path):
    colour_model.save(tmp_path / "model")
    colour_model.save(tmp_path / "model")  # its own
    other = FewShotClassifier.load(tmp_path / "model", store=False)
    other.rename({"red": "crimson"}).save(tmp_path / "model")
    with pytest.raises(UsageError):
        colour_model.save(tmp_path / "model")  # another was saved there since
    colour_model.save(tmp_path / "model", force=True)
    stranger = FewShotClassifier(store=False)
    stranger.model_ = colour_model.model_
    with pytest.raises(UsageError):
        stranger.save(tmp_path / "model")


def test_the_base_model_is_downloaded_on_request(colour_model, offline, tmp_path, monkeypatch):
    calls = []

    def load(name, device, **options):
        calls.append(options.get("download", False))
        return offline

    monkeypatch.setattr("prolip.encoders.load", load)
    colour_model.save(tmp_path / "model")
    for download in (False, True):
        FewShotClassifier.load(tmp_path / "model", store=False, download=download)
    assert calls == [False, True]
    with pytest.raises(UsageError):
        FewShotClassifier.load(tmp_path / "model", method="gda")
