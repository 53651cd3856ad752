"""The files of a web export; tests/pages has the page itself."""

import json
import re

import pytest

from pictures import COLOURS, blotch
from prolip import FewShotClassifier, UsageError
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


def test_by_default_the_runtime_is_that_of_a_cdn(clf, tmp_path):
    assert clf.export(tmp_path / "site", to="web") == ["README.md", "classifier.onnx", "index.html"]
    page, policy = page_of(tmp_path / "site")
    assert page["labels"] == list(clf.classes_)
    assert "</script><b>" in page["labels"]
    assert page["parts"]["wasm"]["url"] == f"{web.CDN}ort-wasm-simd-threaded.wasm"
    assert page["parts"]["model"]["url"] == "./classifier.onnx"
    assert all(part["integrity"].startswith("sha384-") for part in page["parts"].values())
    assert policy == "'self' https://cdn.jsdelivr.net"


def test_the_runtime_and_a_base_url(clf, runtime, tmp_path):
    written = clf.export(tmp_path / "site", to="web", runtime=runtime, base_url="https://example.org/a")
    assert {name for name, _ in web.RUNTIME.values()} < set(written)
    page, policy = page_of(tmp_path / "site")
    assert page["parts"]["model"]["url"] == "https://example.org/a/classifier.onnx"
    assert page["parts"]["script"]["url"] == "https://example.org/a/ort.wasm.bundle.min.mjs"
    assert policy == "https://example.org"


def test_a_single_file_has_everything_inside(clf, runtime, tmp_path):
    found = clf.export(tmp_path / "site", to="web", runtime=runtime, single_file=True)
    assert found == ["README.md", "index.html"]
    page, policy = page_of(tmp_path / "site")
    assert all(part.keys() == {"data"} for part in page["parts"].values())
    assert policy == "'none'"
    both = clf.export(tmp_path / "both", to=["onnx", "web"], runtime=runtime, single_file=True)
    assert {"classifier.onnx", "image.onnx", "index.html"} < set(both)


@pytest.mark.parametrize(
    "options",
    [
        {"single_file": True},
        {"base_url": "ftp://example.org"},
        {"runtime": "nowhere"},
        {"to": "onnx", "base_url": "https://example.org"},
    ],
)
def test_options_that_do_not_fit_are_refused(clf, tmp_path, options):
    with pytest.raises(UsageError):
        clf.export(tmp_path / "site", **{"to": "web", **options})
    assert not (tmp_path / "site").exists()
