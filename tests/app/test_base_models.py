"""Another base model for a project: downloaded from a hub on this machine, compared, and left again."""

import pytest

pytest.importorskip("starlette", reason="the extra `app` is not installed")
pytest.importorskip("uvicorn", reason="the extra `app` is not installed")

from app_server import png, running_page
from graph_models import write_graphs
from hub_server import serving
from pictures import COLOURS, blotch
from prolip import FewShotClassifier
from prolip.app.launch import load_encoder
from prolip.encoders import MODELS
from prolip.encoders.pretrained import PretrainedModel, find_files, find_source


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub that has the model `tiny`."""
    write_graphs(tmp_path / "hub" / "owner" / "tiny")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    for name in ("tiny", "missing"):
        about = PretrainedModel(name, f"owner/{name}", "fp32", 24, "MIT", recommended=name == "tiny")
        monkeypatch.setitem(MODELS, name, about)
    with serving(tmp_path / "hub") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub


@pytest.fixture
def page(hub, tmp_path, offline):
    """A running page with three classes of colours."""
    with running_page(tmp_path / "p", offline) as page:
        for k, (name, colour) in enumerate(COLOURS.items()):
            key = page.add_class(name)
            for i in range(4):
                page.upload(png(blotch(colour, 10 * k + i)), key)
        page.until(lambda now: len(now["figures"].get("held_out", ())) == 12)
        yield page


def choose(page, name):
    """The project when the change to this model is complete, or failed."""
    assert page.json("POST", "/api/model", {"name": name})[0] == 200

    def is_over(found):
        trained = found["figures"]["model"] == found["model"] == name and found["waiting"] == 0
        return trained if found["change"] is None else found["change"]["error"]

    return page.until(is_over)


def test_a_model_is_downloaded_used_and_left(page, hub, tmp_path, offline, monkeypatch):
    rows = {row["name"]: row for row in page.json("GET", "/api/models")[1]}
    assert "tiny" in [name for name, row in rows.items() if row["recommended"]]
    assert rows["offline"]["downloaded"]
    assert (rows["tiny"]["downloaded"], rows["tiny"]["megabytes"]) == (False, 24)
    assert hub.requests == []

    before = page.json("GET", "/api/project")[1]["figures"]
    after = choose(page, "tiny")["figures"]
    images = [blotch(colour, 10 * k + i) for k, colour in enumerate(COLOURS.values()) for i in range(4)]
    labels = [name for name in COLOURS for _ in range(4)]
    for figures, name in ((before, "offline"), (after, "tiny")):
        clf = FewShotClassifier(name, store=False).fit(images, labels)
        assert figures["model"] == name
        assert figures["accuracy"] == pytest.approx(clf.model_.confidence.figures.accuracy)
        assert len(figures["held_out"]) == clf.model_.confidence.figures.images
    unseen = png(blotch(COLOURS["blue"], 99))
    assert page.raw("POST", "/api/try", unseen)[0] == 200
    assert load_encoder(tmp_path / "p").name == "tiny", "the project opens with it again"

    page.upload(png(blotch(COLOURS["red"], 77)), "1")
    page.until(lambda found: found["figures"].get("images") == 13)
    real, encoded = type(offline).encode, []
    monkeypatch.setattr(
        type(offline), "encode", lambda self, pixels: (encoded.append(len(pixels)), real(self, pixels))[1]
    )
    hub.requests.clear()
    found = choose(page, "offline")
    assert len(found["figures"]["held_out"]) == 13
    assert hub.requests == []
    assert sum(encoded) == 1, "features of both models are kept"
    assert page.raw("POST", "/api/try", unseen)[0] == 200
    rows = {row["name"]: row for row in page.json("GET", "/api/models")[1]}
    assert rows["tiny"]["downloaded"]


def test_a_download_is_cancelled(page, hub):
    write_graphs(hub.folder / "owner" / "tiny", padding=8_000_000)
    hub.faults.add("slow")
    hub.pause = 0.3
    page.json("POST", "/api/model", {"name": "tiny"})
    page.until(lambda found: found["change"] and found["change"]["done"] > 0)
    page.json("DELETE", "/api/model")
    found = page.json("GET", "/api/project")[1]
    assert (found["change"], found["model"]) == (None, "offline")
    assert find_files(find_source("tiny")) is None
    hub.faults.clear()
    assert choose(page, "tiny")["model"] == "tiny"


def test_a_model_that_cannot_be_had_is_reported_and_the_old_one_stays(page):
    found = choose(page, "missing")
    assert "missing" in found["change"]["error"]
    assert found["model"] == "offline"
    assert page.raw("POST", "/api/try", png(blotch(COLOURS["blue"], 99)))[0] == 200
    for unknown in ("nosuch", "hf:owner/model", "/etc", ""):
        assert page.json("POST", "/api/model", {"name": unknown})[0] == 400
