"""The page's server, over HTTP: what is stored, what is trained, what is refused."""

import asyncio
import io
import json
import re
import signal
import socket
import subprocess
import sys
import time
import zipfile
from threading import Event
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image
from starlette.exceptions import HTTPException

pytest.importorskip("starlette", reason="the extra `app` is not installed")
pytest.importorskip("uvicorn", reason="the extra `app` is not installed")

from app_server import TOKEN, Client, png, running
from pictures import COLOURS, blotch
from prolip import FewShotClassifier
from prolip.app import encoding, trainer
from prolip.app.page_server import OPEN_PATHS, PageServer
from prolip.app.project import Project
from prolip.app.security import Access, AccessMiddleware
from prolip.core import ProlipError


@pytest.fixture
def page(tmp_path, offline):
    """A running page on a new project."""
    with Project.open(tmp_path / "p") as project:

        def make(port):
            return PageServer(project, offline, Access.at("127.0.0.1", port, TOKEN, OPEN_PATHS)).application()

        with running(make) as port:
            yield Client(port)


def train(page, count=4):
    """Three classes of colours; their ids by name."""
    ids = {}
    for k, (name, colour) in enumerate(COLOURS.items()):
        ids[name] = page.json("POST", "/api/edit/add_class", {"name": name})[1]["classes"][0]
        for i in range(count):
            status, _ = page.upload(png(blotch(colour, 10 * k + i)), ids[name])
            assert status == 200
    page.until(lambda found: found["waiting"] == 0 and len(found["figures"].get("held_out", ())) == 3 * count)
    return ids


def test_from_images_to_predictions_to_an_export_that_agrees(page, tmp_path, offline):
    ids = train(page)
    image = png(blotch(COLOURS["blue"], 99))
    status, _, body = page.raw("POST", "/api/try", image)
    found = json.loads(body)
    assert status == 200
    assert found["top"][0]["class"] == ids["blue"]

    status, headers, packed = page.raw("GET", "/api/downloads/prolip")
    assert status == 200
    assert headers["content-disposition"].endswith("p-prolip.zip")
    zipfile.ZipFile(io.BytesIO(packed)).extractall(tmp_path / "out")
    model = tmp_path / "out" / "p-prolip"
    assert "red" in (model / "README.md").read_text()
    clf = FewShotClassifier.load(model)
    expected = dict(zip(clf.classes_, clf.predict_proba([Image.open(io.BytesIO(image))])[0], strict=True))
    for each in found["top"]:
        name = next(name for name, key in ids.items() if key == each["class"])
        assert abs(each["probability"] - expected[name]) < 1e-5
    assert page.raw("GET", "/api/downloads/hf")[0] == 400
    assert page.raw("GET", "/api/downloads/other")[0] == 404


def test_a_wrong_label_is_found_and_corrected(page):
    ids = train(page, 5)
    odd = page.upload(png(blotch(COLOURS["red"], 77)), ids["green"])[1]["image"]
    found = page.until(lambda found: odd in found["figures"].get("label_errors", ()))
    assert found["figures"]["held_out"][odd][0] == ids["red"]
    page.json("POST", "/api/edit/label_images", {"images": [odd], "label": ids["red"]})
    found = page.until(lambda found: found["figures"]["revision"] == found["revision"])
    assert odd not in found["figures"]["label_errors"]
    assert found["figures"]["held_out"][odd][0] == ids["red"]


def test_label_errors_are_those_of_check(page, photos, prolip):
    """Of the same files: `check` lists exactly what the page marks."""
    ids = {}
    odd = {"green": (200, 40, 40), "blue": (40, 180, 40)}
    for name in COLOURS:
        folder = photos / "train" / name
        if name in odd:
            blotch(odd[name], 900).save(folder / "odd.png")
        ids[name] = page.json("POST", "/api/edit/add_class", {"name": name})[1]["classes"][0]
        for path in sorted(folder.iterdir()):
            page.upload(path.read_bytes(), ids[name], name=f"{name}/{path.name}")
    found = page.until(lambda found: len(found["figures"].get("held_out", ())) == 20)
    names = {key: name for name, key in ids.items()}
    marked = {
        (found["images"][key]["name"], names[suggestion])
        for key, suggestion in found["figures"]["label_errors"].items()
    }
    listed = json.loads(prolip("check", photos / "train", "--json")[1])["findings"]
    wrong = [row for row in listed if row["kind"] == "label-error"]
    assert marked == {("/".join(row["path"].split("/")[-2:]), row["suggestion"]) for row in wrong}
    assert ("green/odd.png", "red") in marked


def test_figures_are_those_of_fit(page, photos, offline):
    clf = FewShotClassifier(offline, store=False).fit(photos / "train")
    for name in COLOURS:
        key = page.json("POST", "/api/edit/add_class", {"name": name})[1]["classes"][0]
        for path in sorted((photos / "train" / name).iterdir()):
            page.upload(path.read_bytes(), key)
    found = page.until(
        lambda found: len(found["figures"].get("held_out", ())) == 18 and found["slow"].get("curve")
    )
    expected = clf.model_.confidence.figures
    assert found["figures"]["accuracy"] == pytest.approx(expected.accuracy)
    assert found["figures"]["interval"] == pytest.approx(expected.accuracy_interval)
    assert found["figures"]["zero_shot_accuracy"] == pytest.approx(expected.zero_shot_accuracy)
    assert found["slow"]["curve"]["now"]["accuracy"] == pytest.approx(expected.accuracy)


def test_unlabelled_images_are_found_by_words_and_by_an_image(page):
    ids = train(page)
    kept = {
        page.upload(png(blotch(colour, 500 + i)))[1]["image"]: name
        for name, colour in COLOURS.items()
        for i in range(3)
    }
    page.until(lambda found: found["waiting"] == 0)
    first, second, third, *rest = page.json("POST", "/api/search", {"words": "green"})[1]["images"]
    assert {kept[first], kept[second], kept[third]} == {"green"}
    assert len(rest) == 6
    like = next(image for image, name in kept.items() if name == "blue")
    found = page.json("POST", "/api/search", {"like": [like]})[1]["images"]
    assert found[0] == like
    assert {kept[image] for image in found[:3]} == {"blue"}
    page.json("POST", "/api/edit/label_images", {"images": found[:2], "label": ids["blue"]})
    both = page.json("POST", "/api/search", {"words": "blue", "like": found[:2]})[1]["images"]
    assert len(both) == 7, "those with a label are not searched, but may be examples"
    assert both[0] == found[2]
    for nothing in ({}, {"words": " "}, {"like": ["0" * 64]}, {"like": []}):
        assert page.json("POST", "/api/search", nothing)[0] == 400


def test_unlabelled_images_get_predictions_and_a_queue(page):
    ids = train(page)
    kept = [page.upload(png(blotch(COLOURS["green"], 50 + i)))[1]["image"] for i in range(3)]
    found = page.until(lambda found: set(found["slow"].get("queue", ())) == set(kept))
    assert {found["figures"]["predictions"][image][0] for image in kept} == {ids["green"]}
    assert found["slow"]["duplicates"] == [] or all(len(group) > 1 for group in found["slow"]["duplicates"])


def test_words_for_a_class_count(page, tmp_path):
    ids = train(page)
    before = page.json("GET", "/api/project")[1]["figures"]["zero_shot_accuracy"]
    page.json("POST", "/api/edit/edit_class", {"key": ids["red"], "text": "a blue sea"})
    found = page.until(lambda found: found["figures"]["revision"] == found["revision"])
    assert found["classes"][ids["red"]] == {"name": "red", "text": "a blue sea"}
    assert found["figures"]["zero_shot_accuracy"] < before
    _, _, packed = page.raw("GET", "/api/downloads/prolip")
    zipfile.ZipFile(io.BytesIO(packed)).extractall(tmp_path / "out")
    clf = FewShotClassifier.load(tmp_path / "out" / "p-prolip")
    rows = clf.model_.text.rows
    clf.add(names=["dog"])
    np.testing.assert_allclose(clf.model_.text.rows[:3], rows, atol=1e-5)


@pytest.mark.parametrize("part", ["warm_up", "training_figures"])
def test_a_step_that_fails_once_is_reported_and_repeated(tmp_path, offline, monkeypatch, part):
    real, events, done = getattr(trainer, part), [], Event()

    def fails_once(*arguments):
        if not events:
            raise RuntimeError("no memory left")
        return real(*arguments)

    def publish(event):
        events.append(event)
        if event["type"] == "figures":
            done.set()

    monkeypatch.setattr(trainer, "RETRY_PAUSE", 0.01)
    with Project.open(tmp_path / "p") as project:
        training = trainer.Trainer(project, offline, publish)
        monkeypatch.setattr(trainer, part, fails_once)
        training.start()
        assert done.wait(30)
        training.close()
    assert events[0] == {"type": "trouble", "message": "RuntimeError: no memory left"}


def test_features_that_cannot_be_written_are_learned_from_and_every_page_says_so(page, tmp_path, monkeypatch):
    from prolip.features.store import Space

    def full(*arguments):
        raise ProlipError("no space left on the disk")

    monkeypatch.setattr(Space, "add", full)
    monkeypatch.setattr(encoding, "RETRY_PAUSE", 0.01)
    ids = train(page)
    found = page.json("GET", "/api/project")[1]
    assert found["figures"]["ready"]
    assert "no space left" in found["trouble"]
    monkeypatch.undo()
    page.upload(png(blotch(COLOURS["red"], 99)), ids["red"])
    page.until(lambda found: found["waiting"] == 0 and found["trouble"] == "")


@pytest.mark.parametrize("name", ["two\nlines", "Vögel \u202e 'and' \"more\"", "..."])
def test_a_project_of_any_name_exports(tmp_path, offline, name):
    with Project.open(tmp_path / name) as project:

        def make(port):
            return PageServer(project, offline, Access.at("127.0.0.1", port, TOKEN, OPEN_PATHS)).application()

        with running(make) as port:
            page = Client(port)
            train(page, 2)
            assert page.json("GET", "/api/project")[1]["name"] == name
            status, headers, packed = page.raw("GET", "/api/downloads/prolip")
    assert status == 200
    shown = unquote(headers["content-disposition"].partition("utf-8''")[2])
    names = zipfile.ZipFile(io.BytesIO(packed)).namelist()
    assert {name.partition("/")[0] for name in names} == {shown.removesuffix(".zip")}
    assert re.fullmatch(r"\w[\w.-]*-prolip\.zip", shown)


def test_pages_hear_of_every_change_in_order(page):
    import http.client

    stream = http.client.HTTPConnection("127.0.0.1", page.port, timeout=30)
    stream.request("GET", "/api/events", headers={"Authorization": f"Bearer {TOKEN}"})
    events = stream.getresponse()
    assert events.readline() == b": connected\n"
    for name in ("a", "b", "c"):
        page.json("POST", "/api/edit/add_class", {"name": name})
    revisions = []
    while len(revisions) < 3:
        line = events.readline()
        if line.startswith(b"data: ") and (event := json.loads(line[6:]))["type"] == "change":
            revisions.append(event["revision"])
    assert revisions == [1, 2, 3]
    stream.close()


def test_a_second_interrupt_ends_quietly_and_loses_nothing(tmp_path):
    program = "from prolip.cli import main; main()"
    options = ["--no-browser", "--port", "0", "--token", TOKEN]
    run = subprocess.Popen(
        [sys.executable, "-c", program, "app", str(tmp_path / "p"), *options],
        stderr=subprocess.PIPE,
        text=True,
    )
    page = Client(int(run.stderr.readline().split("127.0.0.1:")[1].split("/")[0]))
    assert "Everything is in" in run.stderr.readline()
    assert page.json("POST", "/api/edit/add_class", {"name": "cat"})[0] == 200
    with socket.create_connection(("127.0.0.1", page.port)) as upload:  # which never ends
        head = f"POST /api/images HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\nAuthorization: Bearer {TOKEN}"
        upload.sendall(f"{head}\r\nContent-Length: 9\r\n\r\nhalf".encode())
        time.sleep(0.2)
        run.send_signal(signal.SIGTERM)
        time.sleep(0.4)
        assert run.poll() is None
        run.send_signal(signal.SIGINT)
        assert run.wait(15) == 0, "it does not wait for the upload"
    assert not list((tmp_path / "p").glob("*.html")), "the token is in no file any more"
    assert run.stderr.read() == ""
    run.stderr.close()
    with Project.open(tmp_path / "p") as project:
        assert [row.name for row in project.state.classes.values()] == ["cat"]


def test_a_class_that_another_window_removed_is_a_conflict(page):
    key = page.json("POST", "/api/edit/add_class", {"name": "cat"})[1]["classes"][0]
    page.json("POST", "/api/edit/remove_class", {"key": key})
    status, response = page.json("POST", "/api/edit/edit_class", {"key": key, "name": "dog"})
    assert status == 409
    assert response["error"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": None}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": None, "Cookie": "prolip-1=x; ;=;"}, 401),
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({}, 200),
    ],
)
def test_who_may_ask(page, headers, status):
    assert page.raw("GET", "/api/project", headers=headers)[0] == status


def test_a_session_begins_with_the_token_and_scripts_cannot_read_it(page):
    for wrong in (b'{"token": "wrong"}', b'{"token": "\\ud800"}', b"{}"):
        assert page.raw("POST", "/api/session", wrong, {"Authorization": None})[0] == 401
    body = json.dumps({"token": TOKEN}).encode()
    status, headers, _ = page.raw("POST", "/api/session", body, {"Authorization": None})
    assert status == 200
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    given = {"Authorization": None, "Cookie": cookie.split(";")[0]}
    assert page.raw("GET", "/api/project", headers=given)[0] == 200


def test_the_page_is_light_and_asks_no_one_else(page):
    status, headers, body = page.raw("GET", "/", headers={"Authorization": None})
    assert status == 200
    assert "default-src 'none'" in headers["content-security-policy"]
    assert b"http" not in body
    from prolip.app.page_server import STATIC

    files = [path for path in STATIC.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 300_000
    for path in files:
        text = path.read_text()
        assert "https://" not in text, path
        assert "innerHTML" not in text, path


def bomb():
    """A PNG of 30 000 x 30 000 pixels in a few bytes: a header is enough to refuse it."""
    import struct
    import zlib

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    idat = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + idat + chunk(b"IEND", b"")


HOSTILE = {
    "empty": b"",
    "text": b"<script>alert(1)</script>",
    "svg": b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
    "truncated": png(blotch((1, 2, 3), 0))[:200],
    "bomb": bomb(),
    "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
    "random": np.random.default_rng(0).bytes(5000),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_file_that_is_not_an_image_is_refused_and_leaves_nothing(page, tmp_path, kind):
    before = sorted(tmp_path.rglob("*"))
    status, response = page.upload(HOSTILE[kind], name="../../../etc/cron.d/x")
    assert status == 422, response
    assert sorted(tmp_path.rglob("*")) == before


def test_a_name_is_text_and_never_a_path(page, tmp_path):
    picture = png(blotch((9, 9, 9), 1))
    status, response = page.upload(picture, name="../../../../tmp/evil\x00<img onerror=x>.png")
    assert status == 200
    _, found = page.json("GET", "/api/project")
    assert found["images"][response["image"]]["name"] == "../../../../tmp/evil <img onerror=x>.png"
    outside = [path for path in tmp_path.iterdir() if path.name != "p"]
    assert outside == []
    for path in ("..%2f..%2fproject.json", "0" * 64, "../project.json"):
        assert page.raw("GET", f"/api/images/{path}")[0] == 404
    assert page.raw("GET", "/static/..%2fpage.py")[0] == 404
    assert page.raw("GET", "/static/../page.py")[0] == 404


def test_a_small_copy_that_is_lost_is_drawn_again(page, tmp_path):
    image = page.upload(png(blotch((9, 9, 9), 1)))[1]["image"]
    (copy,) = (tmp_path / "p" / "thumbnails").rglob("*.jpg")
    before = copy.read_bytes()
    copy.write_bytes(b"")
    assert page.raw("GET", f"/api/images/{image}")[2] == before


def test_a_body_beyond_the_limit_is_refused_whatever_it_claims(page):
    status, headers, _ = page.raw("POST", "/api/images?name=x", b"", {"Content-Length": str(1 << 40)})
    assert status == 413
    assert headers["connection"] == "close", "what follows would be read as the body"


def test_the_bytes_of_a_body_are_counted():
    async def app(scope, receive, send):
        while (await receive())["more_body"]:
            pass

    async def receive():
        return {"type": "http.request", "body": bytes(300), "more_body": True}

    middleware = AccessMiddleware(app, Access(None, None), 1000)
    with pytest.raises(HTTPException) as error:
        asyncio.run(middleware({"type": "http", "path": "/", "headers": []}, receive, None))
    assert error.value.status_code == 413


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"name": 3}', b"[" * 100_000, b"\xff"])
def test_a_request_that_is_not_a_json_object_is_refused(page, body):
    status, _, body = page.raw("POST", "/api/edit/add_class", body)
    assert status == 422
    assert json.loads(body)["error"]


def test_the_command_line_takes_a_project(page, tmp_path, prolip):
    ids = train(page)
    page.upload(png(blotch(COLOURS["red"], 77)), ids["red"], name="test.png", test=True)
    assert prolip("fit", tmp_path / "p", "-o", tmp_path / "model")[0] == 0
    code, out, _ = prolip("eval", tmp_path / "model", tmp_path / "p", "--json")
    assert code == 0
    assert json.loads(out)["images"] == 1


def test_photos_are_a_folder_for_each_class_and_part(page, tmp_path):
    ids = train(page, 2)
    page.upload(png(blotch(COLOURS["red"], 77)), ids["red"], test=True)
    page.upload(png(blotch(COLOURS["red"], 78)))
    names = zipfile.ZipFile(io.BytesIO(page.raw("GET", "/api/downloads/photos")[2])).namelist()
    folders = [name.rpartition("/")[0] for name in names]
    assert {name: folders.count(name) for name in folders} == {
        "train/red": 2, "train/green": 2, "train/blue": 2, "test/red": 1,
    }  # fmt: skip
    assert len(set(names)) == 7, "all files have the same name"


def test_the_web_page_is_one_file_with_everything_inside(page, tmp_path, monkeypatch):
    from prolip.export import web

    train(page, 2)
    for name, _ in web.RUNTIME.values():
        (tmp_path / name).write_bytes(b"the runtime")
    monkeypatch.setattr("prolip.app.downloads.find_runtime", lambda: tmp_path)
    status, headers, body = page.raw("GET", "/api/downloads/web")
    assert status == 200
    assert headers["content-disposition"].endswith("p-page.html")
    assert b"cdn.jsdelivr" not in body
    assert len(body) > 5_000_000, "the model is inside"
