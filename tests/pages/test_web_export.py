"""The exported web page in a real browser: it predicts what `predict` does, from a host and from the disk."""

import base64
import functools
import http.server
import io
import json
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pictures import COLOURS, blotch
from prolip import FewShotClassifier
from prolip.export import web
from test_features import noise

RUNTIME = Path(__file__).parents[2] / ".venv-full" / "onnxruntime-web"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not RUNTIME.is_dir(), reason="`make runtime` installs onnxruntime-web, with npm"),
]


@pytest.fixture(scope="module")
def clf():
    training = {name: [blotch(colour, k) for k in range(4)] for name, colour in COLOURS.items()}
    return FewShotClassifier("offline", store=False).fit(training)


@pytest.fixture(scope="module")
def pages(clf, tmp_path_factory):
    """The address of each kind of page: a folder on a host, and a single file."""
    root = tmp_path_factory.mktemp("web")
    clf.export(root / "single", to="web", runtime=RUNTIME)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(web, "INSIDE", 1000)  # as for a large model
        clf.export(root / "site", to="web", runtime=RUNTIME)
    clf.export(root / "cdn", to="web")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=root))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    host = f"http://127.0.0.1:{server.server_port}"
    single = (root / "single" / "index.html").as_uri()
    yield {"host": f"{host}/site/", "single": single, "cdn": f"{host}/cdn/", "folder": root}
    server.shutdown()
    server.server_close()


@pytest.fixture
def page(browser):
    context = browser.new_context(viewport={"width": 400, "height": 900}, permissions=["camera"])
    page = context.new_page()
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    yield page
    context.close()


def visit(page, address):
    """Open a page; return every address that it asks for."""
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    page.wait_for_selector("body[data-ready]")
    return asked


def result(page):
    page.wait_for_selector("body[data-result]")
    return json.loads(page.get_attribute("body", "data-result"))


def encoded(image, kind, **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def files():
    """Images of several kinds, sizes and shapes."""
    turned = Image.Exif()
    turned[0x0112] = 6
    red, blue = (blotch(COLOURS[name], 77, 1600) for name in ("red", "blue"))
    faded = red.resize((500, 300))
    faded.putalpha(Image.linear_gradient("L").resize(faded.size))
    return {
        "large.jpg": encoded(red.crop((0, 0, 1600, 900)), "JPEG", quality=90),
        "turned.jpg": encoded(blue.crop((0, 0, 1200, 400)), "JPEG", exif=turned),
        "tall.png": encoded(blue.crop((0, 0, 200, 1500)), "PNG"),
        "grey.jpg": encoded(red.convert("L").resize((301, 227)), "JPEG"),
        "faded.png": encoded(faded, "PNG"),
        "noise.webp": encoded(noise(3, (333, 500)), "WEBP", lossless=True),
    }


@pytest.mark.parametrize("kind", ["host", "single"])
def test_the_page_predicts_what_predict_does(clf, pages, page, kind):
    asked = visit(page, pages[kind])
    images = files()
    expected = clf.predict_proba(list(images.values()))
    rejected = [label is None for label in clf.predict(list(images.values()), reject=True)]
    for (name, content), row, unknown in zip(images.items(), expected, rejected, strict=True):
        page.evaluate("delete document.body.dataset.result")
        media = {"name": name, "mimeType": "image/*", "buffer": content}
        page.set_input_files("#file", media)
        found = result(page)
        np.testing.assert_allclose(found["probabilities"], row, atol=0.02, err_msg=name)
        assert (found["best"], found["unknown"]) == (row.argmax(), unknown), name
        label = "None of these" if unknown else list(clf.classes_)[row.argmax()]
        assert page.text_content("#heading") == label
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert {url.partition("/site/")[0] for url in asked if not url.startswith("blob:")} <= {
        pages["host"].partition("/site/")[0],
        pages["single"],
    }


def test_photos_can_be_dropped_and_pasted(clf, pages, page):
    visit(page, pages["single"])
    for event, name in (("drop", "red"), ("paste", "blue")):
        data = base64.b64encode(encoded(blotch(COLOURS[name], 5), "PNG")).decode()
        page.evaluate("delete document.body.dataset.result")
        page.evaluate(
            """([kind, data]) => {
                const transfer = new DataTransfer();
                const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
                transfer.items.add(new File([bytes], "a.png", { type: "image/png" }));
                const Event = kind === "drop" ? DragEvent : ClipboardEvent;
                const carrier = kind === "drop" ? "dataTransfer" : "clipboardData";
                const options = { [carrier]: transfer, bubbles: true, cancelable: true };
                document.dispatchEvent(new Event(kind, options));
            }""",
            [event, data],
        )
        assert list(clf.classes_)[result(page)["best"]] == name


def test_the_camera_is_classified_until_it_is_stopped(pages, page):
    visit(page, pages["single"])
    page.get_by_role("button", name="Use camera").press("Enter")
    first = result(page)
    assert abs(sum(first["probabilities"]) - 1) < 1e-4
    page.get_by_role("button", name="Stop camera").click()
    assert page.locator("#video").is_hidden()
    assert page.get_by_role("button", name="Use camera").get_attribute("aria-pressed") == "false"


def test_a_file_that_is_no_image_is_named(pages, page):
    visit(page, pages["single"])
    page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"hello"})
    page.get_by_text("a.txt is not an image").wait_for()


def test_the_runtime_from_a_cdn_is_the_one_that_is_pinned(pages, page):
    """The hashes in the page are those of the package; with another content it does not start."""

    def serve(route):
        file = RUNTIME / route.request.url.removeprefix(web.CDN)
        route.fulfill(body=file.read_bytes(), headers={"access-control-allow-origin": "*"})

    page.route(f"{web.CDN}**", serve)
    asked = visit(page, pages["cdn"])
    assert sorted(url for url in asked if url.startswith("https:")) == sorted(
        web.CDN + name for name, _ in web.RUNTIME.values()
    )


def test_a_page_from_the_disk_names_what_it_could_not_load(pages, page):
    page.route(f"{web.CDN}**", lambda route: route.abort())
    page.goto((pages["folder"] / "cdn" / "index.html").as_uri())
    page.get_by_text(web.CDN).wait_for()
    page.goto((pages["folder"] / "site" / "index.html").as_uri())
    page.get_by_text("put this folder on a web host").wait_for()


def test_a_model_that_was_changed_is_not_loaded(pages, page):
    changed = shutil.copytree(pages["folder"] / "site", pages["folder"] / "changed")
    with (changed / "classifier.onnx").open("ab") as file:
        file.write(b"\0")
    page.goto(pages["host"].replace("/site/", "/changed/"))
    page.get_by_text("The model cannot be loaded").wait_for()
