"""Models on a hub: nothing is sent unasked, and what comes back answers as before."""

import json
from copy import copy

import numpy as np
import pytest

from hub_server import OWNER, TOKEN, point_to, serving
from pictures import COLOURS, blotch
from prolip import FewShotClassifier
from prolip.core import ModelError, UsageError
from test_contracts import CONTRACTS, keys

# The hub's library calls its own HTTP client in a way that the client advises against.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty hub, and an empty cache for what comes from it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    (tmp_path / "hub").mkdir()
    with serving(tmp_path / "hub") as hub:
        point_to(hub.address, monkeypatch)
        yield hub


@pytest.fixture
def token(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)


def names(hub, repository):
    return {file.name for file in (hub.folder / repository).iterdir()}


def test_a_model_comes_back_as_it_was(hub, token, colour_model):
    address = colour_model.push_to_hub("me/colours")
    assert address == f"{hub.address}/me/colours"
    assert hub.visibility == {"me/colours": "private"}
    kinds = {name.partition("-")[0] for name in names(hub, "me/colours")}
    assert kinds == {"prolip.json", "prolip", "README.md"}  # no features of the training images
    again = FewShotClassifier.from_pretrained("me/colours")
    pictures = [blotch(COLOURS[name], 7) for name in ("red", "blue")]
    np.testing.assert_allclose(again.predict_proba(pictures), colour_model.predict_proba(pictures), atol=1e-6)
    colour_model.save("model")
    assert FewShotClassifier.from_pretrained("model").predict(pictures).tolist() == ["red", "blue"]


def test_the_card_has_what_the_hub_reads(hub, token, colour_model):
    from huggingface_hub import ModelCard

    colour_model.push_to_hub("colours", private=False)  # of the user of the token
    assert hub.visibility == {f"{OWNER}/colours": "public"}
    card = ModelCard((hub.folder / OWNER / "colours" / "README.md").read_text(encoding="utf-8"))
    about, (result, *_) = card.data, card.data.eval_results
    assert (about.license, about.pipeline_tag) == ("apache-2.0", "image-classification")
    assert "prolip" in about.tags
    figures = colour_model.confidence_.figures
    assert result.metric_type == "accuracy"
    assert result.metric_value == pytest.approx(figures.accuracy, abs=1e-4)
    assert f'from_pretrained("{OWNER}/colours")' in card.text


def test_names_of_classes_do_not_break_the_card(hub, token, colour_model):
    from huggingface_hub import ModelCard

    odd = {"red": 'r"ed: [x]', "green": "g\u2028reen\nlicense: mine", "blue": "💙 #b"}
    copy(colour_model).rename(odd).push_to_hub("me/odd")
    card = ModelCard((hub.folder / "me" / "odd" / "README.md").read_text(encoding="utf-8"))
    assert card.data.license == "apache-2.0"
    assert "`💙 #b`" in card.text


def test_a_repository_with_files_is_replaced_only_by_force(hub, token, colour_model):
    colour_model.push_to_hub("me/colours", support=True)
    before = names(hub, "me/colours")
    assert any(name.startswith("support-") for name in before)
    (hub.folder / "me" / "colours" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError):
        colour_model.push_to_hub("me/colours")
    assert names(hub, "me/colours") == before | {"notes.txt"}
    grown = copy(colour_model).add([blotch((250, 250, 0), i) for i in range(3)], ["yellow"] * 3)
    grown.push_to_hub("me/colours", force=True)
    after = names(hub, "me/colours")
    assert "notes.txt" in after
    assert not {name for name in before if name.endswith(".safetensors")} & after
    assert "yellow" in FewShotClassifier.from_pretrained("me/colours").classes_


def test_without_a_token_nothing_is_sent(hub, colour_model, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(UsageError):
        colour_model.push_to_hub("me/colours")
    assert hub.requests == []
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    with pytest.raises(ModelError):
        colour_model.push_to_hub("me/colours")
    assert not list(hub.folder.iterdir())


@pytest.mark.parametrize("name", ["a/b/c", "me/../x", "me/colours?", ""])
def test_wrong_names_are_one_line(hub, token, colour_model, name):
    with pytest.raises((ModelError, UsageError)) as refused:
        colour_model.push_to_hub(name)
    assert "\n" not in str(refused.value)


def test_failures_of_the_hub_are_one_line(hub, token, colour_model):
    hub.faults.add("commit")
    for call in (colour_model.push_to_hub, FewShotClassifier.from_pretrained):
        with pytest.raises(ModelError) as refused:
            call("me/colours")
        assert "\n" not in str(refused.value)


def test_the_command(hub, token, prolip, colour_model):
    colour_model.save("model")
    code, out, err = prolip("push", "model", "me/colours", "--json")
    assert code == 0, err
    assert json.loads(out) == {"repository": f"{hub.address}/me/colours"}
    assert keys(json.loads(out)) == CONTRACTS["push"]
    assert hub.visibility == {"me/colours": "private"}
    assert prolip("push", "model", "me/colours")[0] == 2
