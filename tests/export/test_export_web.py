"""The files of a web export; tests/pages has the page itself."""

import base64
import hashlib
import json
import re

import pytest

from pictures import COLOURS, blotch
from prolip import FewShotClassifier, ModelError, UsageError
from prolip.export import web


@pytest.fixture(scope="module")
def clf():
    names = ["</script><b>", "green", "blue"]
    colours = zip(names, COLOURS.values(), strict=True)
    training = {name: [blotch(colour, k) for k in range(2)] for name, colour in colours}
    return FewShotClassifier("offline", store=False).fit(training)


@pytest.fixture
def runtime(tmp_path):
    folder = tmp_path / "package" / "dist"
    folder.mkdir(parents=True)
    for name, _ in web.RUNTIME.values():
        (folder / name).write_bytes(b"runtime " * 1000)
    return tmp_path / "package"


def page_of(folder):
    text = (folder / "index.html").read_text(encoding="utf-8")
    (described,) = re.findall(r'<script type="application/json" id="page">(.*?)</script>', text)
    (policy,) = re.findall(r"connect-src ([^;]*);", text)
    return json.loads(described), policy


def test_without_a_runtime_it_is_that_of_a_cdn(clf, tmp_path):
    assert clf.export(tmp_path / "site", to="web") == ["README.md", "index.html"]
    page, policy = page_of(tmp_path / "site")
    assert page["labels"] == list(clf.classes_)
    assert "</script><b>" in page["labels"]
    assert page["parts"]["wasm"]["url"] == f"{web.CDN}ort-wasm-simd-threaded.wasm"
    assert page["parts"]["wasm"]["integrity"].startswith("sha384-")
    assert page["parts"]["model"].keys() == {"data"}
    assert policy == "https://cdn.jsdelivr.net"


def test_a_single_file_has_everything_inside(clf, runtime, tmp_path):
    found = clf.export(tmp_path / "site", to="web", runtime=runtime)
    assert found == ["README.md", "index.html"]
    page, policy = page_of(tmp_path / "site")
    assert all(part.keys() == {"data"} for part in page["parts"].values())
    assert policy == "'none'"
    both = clf.export(tmp_path / "both", to=["onnx", "web"], runtime=runtime)
    assert both == ["README.md", "classifier.onnx", "index.html"]


def test_a_large_model_is_beside_the_page(clf, runtime, tmp_path, monkeypatch):
    monkeypatch.setattr(web, "INSIDE", 1000)
    found = clf.export(tmp_path / "site", to="web", runtime=runtime)
    assert found == ["README.md", "classifier.onnx", "index.html"]
    page, policy = page_of(tmp_path / "site")
    assert page["parts"]["model"]["url"] == "./classifier.onnx"
    assert policy == "'self'"


@pytest.mark.parametrize("options", [{"runtime": "nowhere"}, {"to": "onnx", "runtime": "nowhere"}])
def test_a_runtime_that_is_not_there_is_refused(clf, tmp_path, options):
    with pytest.raises(UsageError):
        clf.export(tmp_path / "site", **{"to": "web", **options})
    assert not (tmp_path / "site").exists()


def test_a_downloaded_runtime_is_checked_and_used(clf, runtime, tmp_path, monkeypatch):
    monkeypatch.setattr(web, "CDN", (runtime / "dist").as_uri() + "/")
    with pytest.raises(ModelError):
        web.download_runtime()  # of another content
    assert web.find_runtime() is None
    digest = base64.b64encode(hashlib.sha384(b"runtime " * 1000).digest()).decode()
    known = {part: (name, f"sha384-{digest}") for part, (name, _) in web.RUNTIME.items()}
    monkeypatch.setattr(web, "RUNTIME", known)
    web.download_runtime()
    clf.export(tmp_path / "site", to="web")
    assert page_of(tmp_path / "site")[1] == "'none'"
