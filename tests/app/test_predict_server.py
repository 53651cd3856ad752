"""`prolip serve`: images in every form that programs send them in, and the model's own predictions."""

import io
import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("starlette", reason="the extra `app` is not installed")
pytest.importorskip("uvicorn", reason="the extra `app` is not installed")

from app_server import TOKEN, Client, png, running_models
from pictures import COLOURS, blotch
from prolip.app.predict_server import load_models
from prolip.core import UsageError

PICTURES = [blotch(colour, 200 + k) for k, colour in enumerate(COLOURS.values())]


@pytest.fixture(scope="module")
def server(colour_model):
    with running_models({"first": colour_model.model_, "second": colour_model.model_}) as port:
        yield Client(port)


def test_predictions_are_those_of_the_model(server, colour_model):
    expected = colour_model.predict_proba(PICTURES)
    for picture, name, row in zip(PICTURES, COLOURS, expected, strict=True):
        status, _, body = server.raw("POST", "/predict?top=3&model=second", png(picture))
        prediction = json.loads(body)
        assert (status, prediction["model"], prediction["class"]) == (200, "second", name)
        assert prediction["probability"] == pytest.approx(row.max(), abs=1e-5)
        assert sum(row["probability"] for row in prediction["top"]) == pytest.approx(1, abs=1e-4)


def test_a_large_photo_gets_the_same_prediction_as_in_python(server, colour_model):
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 256, (900, 1200, 3), np.uint8))
    data = io.BytesIO()
    photo.resize((2400, 1800)).save(data, "JPEG")
    status, _, body = server.raw("POST", "/predict", data.getvalue())
    best = colour_model.predict_proba([data.getvalue()])[0].max()
    assert (status, json.loads(body)["probability"]) == (200, pytest.approx(float(best), abs=1e-6))


def test_none_of_these(server):
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    _, _, body = server.raw("POST", "/predict?reject=true", png(Image.fromarray(noise)))
    assert json.loads(body)["class"] is None


@pytest.mark.parametrize(
    ("path", "body", "kind", "status"),
    [
        ("/predict", b"no picture", "image/png", 422),
        ("/predict", b"", "image/png", 422),
        ("/predict?model=third", b"", "image/png", 400),
        ("/predict?top=many", b"", "image/png", 400),
        ("/predict?top=0", b"", "image/png", 400),
        (f"/predict?top={'9' * 5000}", b"", "image/png", 400),
        ("/predict?reject=maybe", b"", "image/png", 400),
        ("/predict", b'{"image": "AAAA"}', "application/json", 415),
        ("/predict", b"--x--", "multipart/form-data; boundary=x", 415),
        ("/elsewhere", b"", "image/png", 404),
    ],
)
def test_a_wrong_request_gets_its_status_and_a_message(server, path, body, kind, status):
    got, _, body = server.raw("POST", path, body, {"Content-Type": kind})
    assert got == status, body
    assert json.loads(body)["error"]


def test_an_image_above_the_limit_is_refused(server):
    large = io.BytesIO()
    Image.new("L", (9000, 8000), 9).save(large, "JPEG")
    status, _, body = server.raw("POST", "/predict", large.getvalue())
    assert status == 422
    assert "9000 x 8000" in json.loads(body)["error"]


def test_health_models_and_openapi(server):
    assert server.json("GET", "/healthz")[1]["status"] == "ok"
    assert server.json("GET", "/models")[1][0]["classes"] == sorted(COLOURS)
    document = server.json("GET", "/openapi.json")[1]
    assert document["openapi"].startswith("3.1")
    assert {"/predict", "/healthz"} <= set(document["paths"])


def test_there_is_a_form(server):
    status, headers, body = server.raw("GET", "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    used = re.findall(r'(?:src|href)="(static/[^"]+)"', body.decode())
    assert len(used) == 5
    assert [server.raw("GET", f"/{name}")[0] for name in used] == [200] * 5
    assert "//" not in body.decode()  # nothing of another server


def test_the_pages_need_no_token_but_all_data_do(colour_model):
    with running_models({"colours": colour_model.model_}, TOKEN) as port:
        client = Client(port, "another")
        paths = ["/", "/healthz", "/openapi.json", "/static/serve/predict.js", "/models", "/predict"]
        assert [client.raw("GET", path)[0] for path in paths] == [200] * 4 + [401] * 2


def test_two_models_of_one_name_are_refused(tmp_path):
    with pytest.raises(UsageError):
        load_models([tmp_path / "a" / "pets", tmp_path / "b" / "pets"])


def test_the_command_serves_until_it_is_interrupted(colour_model, tmp_path):
    colour_model.save(tmp_path / "colours")
    program = "from prolip.cli import main; main()"
    run = subprocess.Popen(
        [sys.executable, "-c", program, "serve", str(tmp_path / "colours"), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    line = run.stderr.readline()
    port = int(line.split("127.0.0.1:")[1].split("/")[0])
    status, _, body = Client(port).raw("POST", "/predict", png(PICTURES[0]))
    assert (status, json.loads(body)["class"]) == (200, "red")
    os.kill(run.pid, signal.SIGINT)
    assert run.wait(20) == 0
    assert run.communicate()[1] == ""
