"""The pages of the documentation: their code runs, their links lead somewhere, and none is too long."""

import importlib
import re

import pytest

import prolip
from doc_pages import PAGES, ROOT, Session, blocks, draw, fill
from graph_models import write_graphs
from hub_server import serving
from odd_lines import commands
from prolip.cli import fit, root
from prolip.encoders import MODELS
from prolip.encoders.pretrained import PretrainedModel

OTHER_OPTIONS = {
    "--measure",
    "--sets",
    "--only",
    "--test",
    "--draws",
    "--seeds",
    "--shots",
    "--pool",
    "--kills",
}  # of benchmarks
ENTRY_POINTS = ("prolip.experiments", "prolip.layouts", "prolip.protocols")  # their groups
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
        monkeypatch.setitem(MODELS, name, PretrainedModel("Tiny", "owner/model", "fp32", 1, "MIT"))
    with serving(tmp_path / "hub") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub


@pytest.mark.filterwarnings("ignore::UserWarning")  # which the command line prints
@pytest.mark.parametrize("page", with_code, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs(page, drawn, prolip, hub, monkeypatch):
    for name, value in {"TRAIN": 8, "TEST": 5}.items():
        monkeypatch.setattr(fit, name, value)  # fewer images than users see, in the same folders
    fill(drawn, page)
    assert Session(page, prolip, every_extra=False).run()


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        assert re.match(r"https?://", target) or (page.parent / target).exists(), target


def code_spans(page):
    """Inline code, and the lines of code blocks."""
    text = page.read_text(encoding="utf-8")
    fenced = re.findall(r"^```(?:sh|python)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    return [*inline, *(line for block in fenced for line in block.splitlines())]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_and_options_that_a_page_names_exist(page):
    everywhere = {option for command in commands().values() for p in command.params for option in p.opts}
    for span in code_spans(page):
        words = re.split(r"[\s=|&;(]+", span.partition("#")[0])
        path = ()
        if words[0] == "prolip" and len(words) > 1 and words[1].isalpha() and words[1].islower():
            path = next((p for p in ((words[1],), tuple(words[1:3])) if p in commands()), None)
            assert path or words[1] in root.commands, span
        elif not words[0].startswith("--"):
            continue  # another program, or a name
        known = {opt for p in commands()[path].params for opt in p.opts} if path else everywhere
        used = {word for word in words if re.fullmatch(r"--[a-z][a-z-]*", word)}
        assert used - known - {"--help"} <= OTHER_OPTIONS, span


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_python_names_of_a_page_exist(page):
    for name in {n for span in code_spans(page) for n in re.findall(r"(?<![\w/\"])prolip(?:\.\w+)+", span)}:
        if name.endswith((".py", ".json", ".html", ".sqlite")):
            continue
        if name in ENTRY_POINTS:
            continue
        if name.startswith("prolip.sklearn"):
            pytest.importorskip("sklearn")
        value, *rest = prolip, *name.split(".")[1:]
        for part in rest:
            if not hasattr(value, part):
                importlib.import_module(f"{value.__name__}.{part}")
            value = getattr(value, part)
