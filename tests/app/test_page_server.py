"""The page's server, over HTTP: what is stored, what is trained, what is refused."""

import http.client
import io
import json
import re
import signal
import socket
import subprocess
import sys
import time
import zipfile
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("starlette", reason="the extra `app` is not installed")
pytest.importorskip("uvicorn", reason="the extra `app` is not installed")

from app_server import TOKEN, Client, png, running_page
from pictures import COLOURS, blotch
from prolip import FewShotClassifier
from prolip.app import trainer
from prolip.app.project import Project
from prolip.app.responses import STATIC
from prolip.core import ProlipError


@pytest.fixture
def page(tmp_path, offline):
    """A running page on a new project."""
    with running_page(tmp_path / "p", offline) as page:
        yield page


def train(page, count=4):
    """Three classes of colours; their ids by name."""
    ids = {name: page.add_class(name) for name in COLOURS}
    for k, (name, colour) in enumerate(COLOURS.items()):
        for i in range(count):
            assert page.upload(png(blotch(colour, 10 * k + i)), ids[name])[0] == 200
    page.until(lambda now: now["waiting"] == 0 and len(now["figures"].get("held_out", ())) == 3 * count)
    return ids


def unpack(page, kind, folder):
    """Download a zip file and unpack it; returns its response headers."""
    status, headers, packed = page.raw("GET", f"/api/downloads/{kind}")
    assert status == 200
    zipfile.ZipFile(io.BytesIO(packed)).extractall(folder)
    return headers


def test_from_images_to_predictions_to_an_export_that_agrees(page, tmp_path):
    ids = train(page)
    image = png(blotch(COLOURS["blue"], 99))
    status, _, body = page.raw("POST", "/api/try", image)
    prediction = json.loads(body)
    assert status == 200
    assert prediction["top"][0]["class"] == ids["blue"]

    headers = unpack(page, "prolip", tmp_path / "out")
    assert headers["content-disposition"] == 'attachment; filename="p-prolip.zip"'
    model = tmp_path / "out" / "p-prolip"
    clf = FewShotClassifier.load(model)
    expected = dict(zip(clf.classes_, clf.predict_proba([Image.open(io.BytesIO(image))])[0], strict=True))
    names = {key: name for name, key in ids.items()}
    shown = {names[row["class"]]: row["probability"] for row in prediction["top"]}
    assert shown == pytest.approx(expected, abs=1e-5)
    why_not = page.json("GET", "/api/downloads")[1]
    assert why_not["prolip"] is None
    assert why_not["hf"]
    assert page.raw("GET", "/api/downloads/hf")[0] == 400
    assert page.raw("GET", "/api/downloads/other")[0] == 404
    assert not list((tmp_path / "p").glob("tmp*")), "what was sent is deleted"


def test_label_errors_are_those_of_check(page, photos, prolip):
    """Of the same files: `check` lists exactly what the page marks; a corrected one is not marked."""
    odd = {"green": (200, 40, 40), "blue": (40, 180, 40)}
    for name, colour in odd.items():
        blotch(colour, 900).save(photos / "train" / name / "odd.png")
    ids = add_folders(page, photos / "train")
    now = page.until(lambda now: len(now["figures"].get("held_out", ())) == 20)
    names = {key: name for name, key in ids.items()}
    marked = {
        (now["images"][key]["name"], names[suggestion])
        for key, suggestion in now["figures"]["label_errors"].items()
    }
    listed = json.loads(prolip("check", photos / "train", "--json")[1])["findings"]
    wrong = [row for row in listed if row["kind"] == "label-error"]
    assert marked == {("/".join(row["path"].split("/")[-2:]), row["suggestion"]) for row in wrong}
    assert ("green/odd.png", "red") in marked

    (image,) = (key for key, row in now["images"].items() if row["name"] == "green/odd.png")
    page.json("POST", "/api/edit/label_images", {"images": [image], "label": ids["red"]})
    now = page.until(lambda now: now["figures"]["revision"] == now["revision"])
    assert image not in now["figures"]["label_errors"]
    assert now["figures"]["held_out"][image][0] == ids["red"]


def add_folders(page, folder):
    """Upload a folder for each class; returns the ids of the classes."""
    ids = {name: page.add_class(name) for name in COLOURS}
    for name, key in ids.items():
        for path in sorted((folder / name).iterdir()):
            page.upload(path.read_bytes(), key, name=f"{name}/{path.name}")
    return ids


def test_figures_are_those_of_fit(page, photos, offline):
    expected = FewShotClassifier(offline, store=False).fit(photos / "train").model_.confidence.figures
    add_folders(page, photos / "train")
    now = page.until(
        lambda now: (
            now["slow"].get("revision") == now["revision"] and isinstance(now["slow"].get("curve"), dict)
        )
    )
    figures = now["figures"]
    assert figures["accuracy"] == pytest.approx(expected.accuracy)
    assert figures["interval"] == pytest.approx(expected.accuracy_interval)
    assert figures["zero_shot_accuracy"] == pytest.approx(expected.zero_shot_accuracy)
    assert now["slow"]["curve"]["now"]["accuracy"] == pytest.approx(expected.accuracy)


def test_unlabelled_images_are_predicted_and_found_by_words_and_by_an_image(page):
    ids = train(page)
    kept = {
        page.upload(png(blotch(colour, 500 + i)))[1]["image"]: name
        for name, colour in COLOURS.items()
        for i in range(3)
    }
    now = page.until(lambda now: set(now["slow"].get("queue", ())) == set(kept))
    predictions = now["figures"]["predictions"]
    assert {image: predictions[image][0] for image in kept} == {
        image: ids[name] for image, name in kept.items()
    }
    first, second, third, *rest = page.json("POST", "/api/search", {"words": "green"})[1]["images"]
    assert {kept[first], kept[second], kept[third]} == {"green"}
    assert len(rest) == 6
    like = next(image for image, name in kept.items() if name == "blue")
    images = page.json("POST", "/api/search", {"like": [like]})[1]["images"]
    assert images[0] == like
    assert {kept[image] for image in images[:3]} == {"blue"}
    page.json("POST", "/api/edit/label_images", {"images": images[:2], "label": ids["blue"]})
    both = page.json("POST", "/api/search", {"words": "blue", "like": images[:2]})[1]["images"]
    assert len(both) == 7, "those with a label are not searched, but may be examples"
    assert both[0] == images[2]
    for nothing in ({}, {"words": " "}, {"like": ["0" * 64]}, {"like": []}):
        assert page.json("POST", "/api/search", nothing)[0] == 400


def test_words_for_a_class_count(page, tmp_path):
    ids = train(page)
    before = page.json("GET", "/api/project")[1]["figures"]["zero_shot_accuracy"]
    page.json("POST", "/api/edit/edit_class", {"key": ids["red"], "text": "a blue sea"})
    now = page.until(lambda now: now["figures"]["revision"] == now["revision"])
    assert now["classes"][ids["red"]] == {"name": "red", "text": "a blue sea"}
    assert now["figures"]["zero_shot_accuracy"] < before
    unpack(page, "prolip", tmp_path / "out")
    clf = FewShotClassifier.load(tmp_path / "out" / "p-prolip")
    rows = clf.model_.text.rows
    clf.add(names=["dog"])
    np.testing.assert_allclose(clf.model_.text.rows[:3], rows, atol=1e-5)


def test_features_that_cannot_be_written_are_reported_and_tried_again(page, monkeypatch):
    def full(*arguments):
        raise ProlipError("no space left on the disk")

    monkeypatch.setattr("prolip.features.store.Space.add", full)
    monkeypatch.setattr(trainer, "RETRY_PAUSE", 0.01)
    page.upload(png(blotch(COLOURS["red"], 99)))
    page.until(lambda now: "no space left" in now["trouble"])
    monkeypatch.undo()
    page.add_class("cat")
    page.until(lambda now: now["waiting"] == 0 and now["trouble"] == "")


@pytest.mark.parametrize("name", ["two\nlines", "Vögel \u202e 'and' \"more\".1", "..."])
def test_a_project_of_any_name_exports(tmp_path, offline, name):
    with running_page(tmp_path / name, offline) as page:
        train(page, 2)
        assert page.json("GET", "/api/project")[1]["name"] == name
        headers = unpack(page, "prolip", tmp_path / "out")
    (folder,) = (tmp_path / "out").iterdir()
    shown = unquote(re.search(r"filename\*?=(?:utf-8''|\")([^\"]+)", headers["content-disposition"])[1])
    assert shown == f"{folder.name}.zip"


def test_pages_hear_of_every_change_in_order_and_what_is_gone_is_a_conflict(page):
    stream = http.client.HTTPConnection("127.0.0.1", page.port, timeout=30)
    stream.request("GET", "/api/events", headers={"Authorization": f"Bearer {TOKEN}"})
    events = stream.getresponse()
    assert events.readline() == b": connected\n"
    for name in ("a", "b", "c"):
        page.add_class(name)
    revisions = []
    while len(revisions) < 3:
        line = events.readline()
        if line.startswith(b"data: ") and (event := json.loads(line[6:]))["type"] == "change":
            revisions.append(event["revision"])
    assert revisions == [1, 2, 3]
    stream.close()
    page.json("POST", "/api/edit/remove_class", {"key": "1"})  # in another window
    status, response = page.json("POST", "/api/edit/edit_class", {"key": "1", "name": "dog"})
    assert status == 409
    assert response["error"]


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
    page.add_class("cat")
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


def test_the_page_is_light_and_asks_no_one_else(page):
    status, headers, body = page.raw("GET", "/", headers={"Authorization": None})
    assert status == 200
    assert "default-src 'none'" in headers["content-security-policy"]
    assert b"http" not in body
    files = [path for path in STATIC.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 300_000
    for path in files:
        text = path.read_text()
        assert "https://" not in text, path
        assert "innerHTML" not in text, path


HOSTILE = {
    "empty": b"",
    "svg": b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
    "truncated": png(blotch((1, 2, 3), 0))[:200],
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
    images = page.json("GET", "/api/project")[1]["images"]
    assert images[response["image"]]["name"] == "../../../../tmp/evil <img onerror=x>.png"
    assert [path.name for path in tmp_path.iterdir()] == ["p"]
    for path in ("..%2f..%2fproject.json", "0" * 64, "../project.json"):
        assert page.raw("GET", f"/api/images/{path}")[0] == 404
    for path in ("..%2fpage_server.py", "../page_server.py"):
        assert page.raw("GET", f"/static/{path}")[0] == 404


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"name": 3}', b'{"nom": "x"}', b"[" * 100_000, b"\xff"])
def test_a_request_of_another_form_is_refused(page, body):
    status, _, body = page.raw("POST", "/api/edit/add_class", body)
    assert status == 422
    assert json.loads(body)["error"]


def test_the_project_is_a_folder_of_photos_to_the_command_line_and_as_a_download(page, tmp_path, prolip):
    ids = train(page, 2)
    page.upload(png(blotch(COLOURS["red"], 77)), ids["red"], name="test.png", test=True)
    page.upload(png(blotch(COLOURS["red"], 78)))
    assert prolip("fit", tmp_path / "p", "-o", tmp_path / "model")[0] == 0
    code, out, _ = prolip("eval", tmp_path / "model", tmp_path / "p", "--json")
    assert code == 0
    assert json.loads(out)["images"] == 1
    unpack(page, "photos", tmp_path / "out")
    folders = [str(path.parent.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.png")]
    counts = {name: folders.count(name) for name in folders}
    assert counts == {"train/red": 2, "train/green": 2, "train/blue": 2, "test/red": 1}


def test_the_web_page_is_one_file_with_everything_inside(page, tmp_path, monkeypatch):
    from prolip.export import web

    train(page, 2)
    for name, _ in web.RUNTIME.values():
        (tmp_path / name).write_bytes(b"the runtime")
    monkeypatch.setattr("prolip.app.downloads.find_runtime", lambda: tmp_path)
    status, headers, body = page.raw("GET", "/api/downloads/web")
    assert status == 200
    assert headers["content-disposition"] == 'attachment; filename="p-page.html"'
    assert b"cdn.jsdelivr" not in body
    assert len(body) > 5_000_000, "the model is inside"
