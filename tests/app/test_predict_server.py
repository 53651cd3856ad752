"""`prolip serve`: images in every form that programs send them in, and the model's own predictions."""

import asyncio
import base64
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("starlette", reason="the extra `app` is not installed")
pytest.importorskip("uvicorn", reason="the extra `app` is not installed")
pytest.importorskip("python_multipart", reason="the extra `app` is not installed")

from app_server import Client, png, running
from pictures import COLOURS, blotch
from prolip.app.batcher import Batcher
from prolip.app.predict_server import OPEN_PATHS, PredictServer, load_models
from prolip.app.security import Access, is_loopback, require_token
from prolip.core import UsageError
from prolip.encoders.preprocess import Preprocess
from prolip.features import ImageError

PICTURES = [blotch(colour, 200 + k) for k, colour in enumerate(COLOURS.values())]


@pytest.fixture(scope="module")
def server(colour_model):
    models = {"first": colour_model.model_, "second": colour_model.model_}

    def make(port):
        return PredictServer(models, Access.at("127.0.0.1", port, None, OPEN_PATHS)).application()

    with running(make) as port:
        yield Client(port)


@pytest.fixture(scope="module")
def expected(colour_model):
    return colour_model.predict_proba(PICTURES)


def test_bytes_multipart_and_base64_give_the_predictions_of_the_model(server, expected):
    files = [png(picture) for picture in PICTURES]
    for data, row in zip(files, expected, strict=True):
        status, _, body = server.raw("POST", "/predict?top=3", data, {"Content-Type": "image/png"})
        found = json.loads(body)
        assert status == 200
        assert found["probability"] == pytest.approx(row.max(), abs=1e-5)
        assert sum(each["probability"] for each in found["top"]) == pytest.approx(1, abs=1e-4)
    several = {"images": [base64.b64encode(data).decode() for data in files], "model": "second"}
    _, found = server.json("POST", "/predict", several, {"Content-Type": "application/json"})
    assert [each["class"] for each in found["predictions"]] == list(COLOURS)
    assert found["model"] == "second"
    parts = b"".join(
        b'--x\r\nContent-Disposition: form-data; name="image"; filename="../%d.png"\r\n\r\n%b\r\n' % (i, data)
        for i, data in enumerate(files)
    )
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    status, _, body = server.raw("POST", "/predict", parts + b"--x--\r\n", headers)
    assert [each["class"] for each in json.loads(body)["predictions"]] == list(COLOURS)


def test_none_of_these(server):
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    from PIL import Image

    _, _, body = server.raw("POST", "/predict?reject=true", png(Image.fromarray(noise)))
    assert json.loads(body)["class"] is None


@pytest.mark.parametrize(
    ("path", "body", "kind", "status"),
    [
        ("/predict", b"no picture", "image/png", 422),
        ("/predict?model=third", b"", "image/png", 400),
        ("/predict?top=many", b"", "image/png", 400),
        ("/predict?reject=maybe", b"", "image/png", 400),
        ("/predict?top=0", b"", "image/png", 400),
        ("/predict?top=", b"", "image/png", 400),
        ("/predict?reject=", b"", "image/png", 400),
        ("/predict?model=", b"", "image/png", 400),
        (f"/predict?top={'9' * 5000}", b"", "image/png", 400),
        ("/predict", b'{"image": "***"}', "application/json", 422),
        ("/predict", b'{"images": []}', "application/json", 422),
        ("/predict", b"{}", "application/json", 422),
        ("/predict", b"--x", "multipart/form-data", 400),
        ("/predict", b"--x--\r\n", "multipart/form-data; boundary=x", 422),
        ("/elsewhere", b"", "image/png", 404),
    ],
)
def test_a_wrong_request_gets_its_status_and_a_message(server, path, body, kind, status):
    found, _, body = server.raw("POST", path, body, {"Content-Type": kind})
    assert found == status, body
    assert json.loads(body)["error"]


def test_base64_may_have_line_breaks(server):
    """As the command `base64` and mail programs write it."""
    text = base64.encodebytes(png(PICTURES[0])).decode().replace("\n", "\r\n")
    assert text.count("\n") > 1
    for form in (text, f"data:image/png;base64,{text}"):
        status, found = server.json("POST", "/predict", {"image": form}, {"Content-Type": "application/json"})
        assert (status, found["class"]) == (200, "red")


def test_one_bad_image_does_not_spoil_the_others(server):
    good = base64.b64encode(png(PICTURES[0])).decode()
    _, found = server.json(
        "POST", "/predict", {"images": ["AAAA", good, "z"]}, {"Content-Type": "application/json"}
    )
    assert found["predictions"][0]["error"]
    assert found["predictions"][1]["class"] == "red"
    assert found["predictions"][2]["error"]


@pytest.mark.parametrize(("data", "status"), [(png(PICTURES[0]), 200), (b"no picture", 422)])
def test_one_image_in_a_form_gets_one_prediction(server, data, status):
    form = (
        b'--x\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n%b\r\n--x--\r\n' % data
    )
    found, _, body = server.raw("POST", "/predict", form, {"Content-Type": "multipart/form-data; boundary=x"})
    assert found == status
    assert ("class" if status == 200 else "error") in json.loads(body)


def test_health_models_and_openapi(server):
    assert server.json("GET", "/healthz")[1]["status"] == "ok"
    assert server.json("GET", "/models")[1][0]["classes"] == sorted(COLOURS)
    document = server.json("GET", "/openapi.json")[1]
    assert document["openapi"].startswith("3.1")
    assert {"/predict", "/healthz"} <= set(document["paths"])


def test_there_is_a_form_and_a_page_of_the_api(server):
    for path in ("/", "/docs"):
        status, headers, body = server.raw("GET", path)
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        used = re.findall(r'(?:src|href)="(static/[^"]+)"', body.decode())
        assert len(used) == 5
        assert [server.raw("GET", f"/{name}")[0] for name in used] == [200] * 5
        assert "//" not in body.decode().replace("<!--", "")  # nothing of another server


def test_the_pages_need_no_token_but_all_data_do(colour_model):
    def make(port):
        access = Access.at("127.0.0.1", port, "a-secret", OPEN_PATHS)
        return PredictServer({"colours": colour_model.model_}, access).application()

    with running(make) as port:
        client = Client(port, "another")
        paths = ["/", "/docs", "/healthz", "/static/serve/docs.js", "/models", "/openapi.json"]
        assert [client.raw("GET", path)[0] for path in paths] == [200] * 4 + [401] * 2


def test_a_page_of_another_site_is_refused(server):
    assert server.raw("POST", "/predict", b"", {"Origin": "http://evil.example"})[0] == 403


@pytest.mark.parametrize("allowed", ["https://Shop.example", "*"])
def test_pages_of_allowed_origins_may_ask(colour_model, allowed):
    def make(port):
        access = Access.at("127.0.0.1", port, "a-secret", OPEN_PATHS, [allowed])
        return PredictServer({"colours": colour_model.model_}, access).application()

    site = {"Origin": "https://shop.example", "Sec-Fetch-Site": "cross-site"}
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    with running(make) as port:
        client = Client(port, "a-secret")
        status, headers, _ = client.raw("OPTIONS", "/predict", None, {**site, **asked, "Authorization": None})
        assert (status, headers["access-control-allow-methods"]) == (200, "GET, POST")
        status, headers, body = client.raw("POST", "/predict", png(PICTURES[0]), site)
        assert (status, json.loads(body)["class"]) == (200, "red")
        assert headers["access-control-allow-origin"] == ("*" if allowed == "*" else site["Origin"])
        status, headers, _ = client.raw("GET", "/models", None, {**site, "Authorization": None})
        assert status == 401  # the token is needed all the same, and the page may read why
        assert "access-control-allow-origin" in headers
        other = client.raw("GET", "/models", None, {**site, "Origin": "https://other.example"})
        assert other[0] == (200 if allowed == "*" else 403)
        assert client.raw("GET", "/models", None, {"Sec-Fetch-Site": "cross-site"})[0] == 403


@pytest.mark.parametrize(
    "origin", ["shop.example", "https://shop.example/", "ftp://shop.example", "null", ""]
)
def test_what_is_no_origin(origin):
    with pytest.raises(UsageError):
        Access.at("127.0.0.1", 8000, None, (), [origin])


class Slow:
    """An encoder of single pixels that waits for an event; its feature is the red of an image."""

    preprocess = Preprocess(1, (0.5,) * 3, (0.5,) * 3)
    micro_batch_size, max_parallel_batches = 4, 1

    def __init__(self):
        self.sizes, self.go = [], threading.Event()

    def encode(self, pixels):
        self.sizes.append(len(pixels))
        assert self.go.wait(20)
        if (pixels[:, 0, 0, 0] == 255).any():
            raise MemoryError("the tower does not like white")
        return pixels[:, 0, 0, :1].astype(np.float32)


def dot(red):
    return png(Image.new("RGB", (1, 1), (red, 0, 0)))


def encoded(encoder, images):
    """The results of images that wait together while the first is encoded."""

    async def run():
        batcher = Batcher(encoder)
        first = asyncio.create_task(batcher.encode(images[0]))
        while not encoder.sizes:
            await asyncio.sleep(0.001)
        rest = [asyncio.create_task(batcher.encode(image)) for image in images[1:]]
        readable = sum(image != b"no image" for image in images[1:])
        while len(batcher._ready) < readable:
            await asyncio.sleep(0.001)
        encoder.go.set()
        return await asyncio.gather(first, *rest, return_exceptions=True)

    with ThreadPoolExecutor(1) as apart:  # from a loop of another test's browser, should one be running
        return apart.submit(asyncio.run, run()).result()


def test_images_that_wait_together_are_encoded_together():
    encoder = Slow()
    found = encoded(encoder, [dot(9), *(dot(i) for i in range(8))])
    assert [float(row[0]) for row in found] == [9, *range(8)]
    assert encoder.sizes == [1, 4, 4]


def test_each_image_has_its_own_result():
    encoder = Slow()
    failed, *found = encoded(encoder, [dot(255), dot(1), b"no image", dot(2), dot(3), dot(4)])
    assert isinstance(failed, MemoryError)
    assert isinstance(found.pop(1), ImageError)
    assert [float(row[0]) for row in found] == [1, 2, 3, 4]


def test_a_large_photo_gets_the_same_prediction_as_in_python(server, colour_model):
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 256, (900, 1200, 3), np.uint8))
    data = io.BytesIO()
    photo.resize((2400, 1800)).save(data, "JPEG")
    status, _, body = server.raw("POST", "/predict", data.getvalue())
    best = colour_model.predict_proba([data.getvalue()])[0].max()
    assert (status, json.loads(body)["probability"]) == (200, pytest.approx(float(best), abs=1e-6))


@pytest.mark.parametrize(
    ("host", "own"), [("127.0.0.1", True), ("::1", True), ("0.0.0.0", False), ("box", False)]
)
def test_others_need_a_token(host, own):
    assert is_loopback(host) == own
    made = [require_token(host, None) for _ in range(2)]
    if own:
        assert made == [None, None]
    else:
        assert len(made[0]) >= 32
        assert made[0] != made[1]
        with pytest.raises(UsageError):
            require_token(host, "x" * 15)
    assert require_token(host, "x" * 16) == "x" * 16


@pytest.mark.parametrize("models", [{}, {"": None}, {" ": None}])
def test_models_need_names(models):
    with pytest.raises(UsageError):
        PredictServer(models, Access(None, None))


def test_an_empty_path_is_not_the_working_folder(colour_model, tmp_path, monkeypatch):
    colour_model.save(tmp_path / "colours")
    monkeypatch.chdir(tmp_path / "colours")
    assert list(load_models(["."])) == ["colours"]
    with pytest.raises(UsageError):
        load_models([""])


def jpeg_of(width, height):
    """A JPEG of one colour; a large one is quick to make and to decode."""
    made = io.BytesIO()
    Image.new("L", (width, height), 9).save(made, "JPEG")
    return made.getvalue()


def test_an_image_above_the_limit_is_refused(server):
    status, _, body = server.raw("POST", "/predict", jpeg_of(9000, 8000))
    assert status == 422
    assert "9000 x 8000" in json.loads(body)["error"]


def test_the_command_serves_until_it_is_interrupted(colour_model, tmp_path):
    colour_model.save(tmp_path / "colours")
    program = "from prolip.cli import main; main()"
    run = subprocess.Popen(
        [sys.executable, "-c", program, "serve", str(tmp_path / "colours"), "--port", "0", "--access-log"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    line = run.stderr.readline()
    port = int(line.split("127.0.0.1:")[1].split("/")[0])
    status, _, body = Client(port).raw("POST", "/predict", png(PICTURES[0]))
    assert (status, json.loads(body)["class"]) == (200, "red")
    os.kill(run.pid, signal.SIGINT)
    assert run.wait(20) == 0
    log, errors = run.communicate()
    assert errors == ""
    assert log.count("\n") == 1
    assert '"POST /predict HTTP/1.1" 200' in log
