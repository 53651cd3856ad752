"""`prolip serve`: images in every form that programs send them in, and the model's own predictions."""

import base64
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("starlette", reason="the extra `app` is not installed")
pytest.importorskip("uvicorn", reason="the extra `app` is not installed")
pytest.importorskip("python_multipart", reason="the extra `app` is not installed")

from app_server import Client, png, running
from pictures import COLOURS, blotch
from prolip.app.batcher import Batcher, Busy
from prolip.app.guard import Access, is_loopback, require_token
from prolip.app.predict_server import OPEN_PATHS, PredictServer, load_models
from prolip.core import InputError, UsageError
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
        used = re.findall(r'(?:src|href)="(/static/[^"]+)"', body.decode())
        assert len(used) == 5
        assert [server.raw("GET", name)[0] for name in used] == [200] * 5
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
        self.sizes, self.entered, self.go = [], threading.Event(), threading.Event()

    def encode(self, pixels):
        self.entered.set()
        assert self.go.wait(20)
        self.sizes.append(len(pixels))
        if (pixels[:, 0, 0, 0] == 255).any():
            raise InputError("the tower does not like white")
        return pixels[:, 0, 0, :1].astype(np.float32)


def dot(red):
    return png(Image.new("RGB", (1, 1), (red, 0, 0)))


def tell(x):
    return [(len(x), float(value)) for value in x[:, 0]]


def test_images_that_wait_together_are_encoded_together():
    def negate(x):
        return (-x[:, 0]).tolist()

    encoder = Slow()
    batcher = Batcher(encoder, max_pending=9)
    first = batcher.submit(dot(9), tell)
    assert encoder.entered.wait(20)
    rest = [batcher.submit(dot(i), negate if i == 1 else tell) for i in range(8)]
    with pytest.raises(Busy):
        batcher.submit(dot(0), tell)
    while len(batcher._decoded) < 8:
        time.sleep(0.001)
    encoder.go.set()
    assert first.result(20) == (1, 9)
    found = [future.result(20) for future in rest]
    assert found.pop(1) == -1
    assert [value for _, value in found] == [0, 2, 3, 4, 5, 6, 7]
    assert sorted(count for count, _ in found) == [3, 3, 3, 4, 4, 4, 4], "one has another postprocess"
    assert encoder.sizes == [1, 4, 4]
    assert batcher.submit(dot(5), tell).result(20) == (1, 5), "it is accepted again"
    batcher.close()


def test_images_of_cancelled_requests_count_until_they_are_gone(monkeypatch):
    entered, go = threading.Semaphore(0), threading.Event()

    def slow(data):
        entered.release()
        assert go.wait(20)
        return nullcontext(Image.new("RGB", (1, 1)))

    monkeypatch.setattr("prolip.app.batcher.decode", slow)
    monkeypatch.setattr("prolip.app.batcher.cores", lambda: 2)
    encoder = Slow()
    encoder.go.set()
    batcher = Batcher(encoder, max_pending=4)
    kept = [batcher.submit(b"", tell) for _ in range(2)]
    assert all(entered.acquire(timeout=20) for _ in kept), "both threads decode"
    for _ in range(4):
        batcher.submit(b"", tell).cancel()
    with pytest.raises(Busy):
        batcher.submit(b"", tell)
    go.set()
    assert [future.result(20)[1] for future in kept] == [0, 0]
    batcher.close()


def test_each_image_has_its_own_result_and_closing_waits_for_all():
    encoder = Slow()
    batcher = Batcher(encoder)
    kinds = {0: dot(0), 1: b"no picture", 2: dot(255)}
    found = [(i % 3, batcher.submit(kinds[i % 3], tell)) for i in range(30)]
    found[0][1].cancel()
    encoder.go.set()
    batcher.close()
    assert all(result.done() for _, result in found)
    for kind, result in found[1:]:
        if kind == 1:
            assert isinstance(result.exception(), ImageError)
        else:  # the tower fails for all that are in it together
            assert result.exception() is None or "white" in str(result.exception())
    assert any(result.exception() for kind, result in found[1:] if kind == 2)


@pytest.mark.parametrize("wrong", [SystemExit, MemoryError])
def test_no_caller_is_left_waiting(monkeypatch, wrong):
    def fails(pixels):
        raise wrong

    encoder = Slow()
    encoder.go.set()
    batcher = Batcher(encoder)
    monkeypatch.setattr(encoder, "encode", fails)
    for _ in range(4):
        assert isinstance(batcher.submit(dot(1), tell).exception(20), wrong)
    monkeypatch.undo()
    too_few = batcher.submit(dot(1), lambda x: [])
    assert isinstance(too_few.exception(20), ValueError)
    assert batcher.submit(dot(5), tell).result(20) == (1, 5)
    batcher.close()
    with pytest.raises(Busy):
        batcher.submit(dot(1), tell)


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
    if not own:
        with pytest.raises(UsageError):
            require_token(host, None)
        with pytest.raises(UsageError):
            require_token(host, "x" * 15)
        require_token(host, "x" * 16)


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
