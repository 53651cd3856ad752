"""The pages of the documentation: their code runs, their links lead somewhere, and none is too long."""

import re

import pytest

from doc_pages import PAGES, ROOT, Session, blocks, draw, fill
from graph_models import WIDTH, write_graphs
from hub_server import serving
from prolip import demo
from prolip.encoders import MODELS
from prolip.encoders.pretrained import PretrainedModel

NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
with_code = [
    page for page in PAGES if any(b.language in ("sh", "python") and not b.condition for b in blocks(page))
]


@pytest.fixture(scope="session")
def drawn(tmp_path_factory):
    """Photos, and a model of them."""
    from prolip import FewShotClassifier

    folder = tmp_path_factory.mktemp("drawn")
    draw(folder)
    FewShotClassifier(store=False).fit(folder / "photos").save(folder / "my-model")
    return folder


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub on this machine that has small models under the names of CLIP and SigLIP."""
    write_graphs(tmp_path / "hub" / "owner" / "model")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    for name in ("clip", "siglip2-b16"):
        monkeypatch.setitem(MODELS, name, PretrainedModel("Tiny", "owner/model", "fp32", 1, "MIT", WIDTH))
    with serving(tmp_path / "hub") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub


@pytest.mark.filterwarnings("ignore::UserWarning")  # which the command line prints
@pytest.mark.parametrize("page", with_code, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs(page, drawn, prolip, hub, monkeypatch):
    for name, value in {"SHOTS": (1, 4, 16), "SEEDS": (1,), "TRAIN": 8, "TEST": 5}.items():
        monkeypatch.setattr(demo, name, value)  # fewer images than users see, in the same folders
    fill(drawn, page)
    assert Session(page, prolip, every_extra=False).run()


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        assert re.match(r"https?://", target) or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_page_is_short_and_its_code_is_fenced(page):
    text = page.read_text(encoding="utf-8")
    assert text.count("\n") <= (120 if page.name == "README.md" else 300)
    assert not re.search(r"^[<>]{7} ", text, re.MULTILINE), "a merge conflict"
    assert not re.search(r"\n\n    (?![-*\d ])\S", re.sub(r"```.*?```", "", text, flags=re.DOTALL)), (
        "an indented block"
    )
