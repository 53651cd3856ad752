"""The page's server under hostile uploads and kills (`pytest -m slow`)."""

import http.client
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import threading
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from app_server import Client, png
from prolip.app.project import Project
from prolip.data import draw_textures

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3 * 3600),
    pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc"),
]
UPLOADS, KILLS, CALLERS = 10_000, 50, 4


@contextmanager
def app(folder, errors):
    """Run `prolip app` on a free port; yields the process and a client. Lines of standard error are added."""
    arguments = ["app", str(folder), "--port", "0", "--no-browser"]
    command = [sys.executable, "-m", "prolip", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        found = re.search(r"127\.0\.0\.1:(\d+)/#token=(\S+)", process.stderr.readline())
        reader = threading.Thread(target=lambda: errors.extend(process.stderr))
        reader.start()
        try:
            yield process, Client(int(found[1]), found[2])
        finally:
            process.terminate()
            process.wait()
            reader.join()


def images(count):
    return [png(image) for image in draw_textures(count).images]


def decompression_bomb(side=30_000):
    """A PNG of a few hundred bytes that claims 900 megapixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(bytes(10_000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + data + chunk(b"IEND", b"")


def hostile_calls(good, rng):
    """Functions of a client: calls that must all be refused, or do no harm."""

    def upload(data, query="name=a.png", **headers):
        return lambda client: client.raw("POST", f"/api/images?{query}", data(), headers)

    def any_image():
        return rng.choice(good)

    return [
        upload(decompression_bomb),
        upload(lambda: any_image()[: rng.randrange(1, 2000)]),
        upload(any_image, "name=" + "..%2f" * 9 + "tmp%2fevil%00.jpg"),
        upload(lambda: rng.randbytes(rng.randrange(10_000))),
        upload(lambda: b"<html><script>alert(1)</script>", "name=a.svg"),
        upload(lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n"),
        upload(any_image, Authorization=None),
        upload(any_image, Authorization="Bearer guess"),
        upload(any_image, Host="evil.example"),
        upload(any_image, Origin="http://evil.example"),
        upload(any_image, "label=999"),
        upload(any_image, "label=..%2f..%2fetc"),
        lambda client: client.raw("POST", "/api/edit/label_images", rng.randbytes(50)),
        lambda client: client.raw("POST", "/api/edit/add_class", b'{"name": ' + b"[" * 5000),
        lambda client: client.raw("GET", f"/api/images/..%2f..%2f{rng.randrange(99)}"),
        lambda client: client.raw("PUT", "/api/project", b"x"),
    ]


def resident_megabytes(pid):
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def test_hostile_uploads_leave_no_trace(tmp_path):
    """Every second upload is hostile: no traceback, no file elsewhere, no growing memory."""
    good, rng, errors = images(20), random.Random(0), []
    hostile, statuses, memory = hostile_calls(good, rng), Counter(), []
    with app(tmp_path / "project", errors) as (process, client):
        client.json("POST", "/api/edit/add_class", {"name": "one"})

        def call(start):
            for i in range(start, UPLOADS, CALLERS):
                try:
                    if i % 2:
                        status, _ = client.upload(rng.choice(good), "1")
                    else:
                        status, *_ = rng.choice(hostile)(client)
                except (ConnectionError, http.client.HTTPException):
                    status = "closed"
                statuses[status] += 1
                if i % (UPLOADS // 10) == 0:
                    memory.append(resident_megabytes(process.pid))

        with ThreadPoolExecutor(CALLERS) as pool:
            list(pool.map(call, range(CALLERS)))
        assert client.json("GET", "/api/project")[0] == 200
    assert not [line for line in errors if "Traceback" in line]
    assert [path.name for path in tmp_path.iterdir()] == ["project"]
    assert statuses[200] >= UPLOADS // 2
    assert statuses[500] == 0
    assert max(memory[2:]) < 1.5 * min(memory[2:]), memory


def test_what_was_acknowledged_survives_a_kill(tmp_path):
    files, rng, labels = images(30), random.Random(0), {}
    for moment in range(KILLS):
        with app(tmp_path / "project", []) as (process, client):
            known = client.json("GET", "/api/project")[1]["classes"]
            ids = {row["name"]: key for key, row in known.items()}
            for name in ("one", "two"):
                if name not in ids:
                    ids[name] = client.json("POST", "/api/edit/add_class", {"name": name})[1]["classes"][0]
            threading.Timer(rng.uniform(0.05, 2.5), os.kill, (process.pid, signal.SIGKILL)).start()
            change_until_killed(client, files, moment, ids, labels, rng)
        with Project.open(tmp_path / "project") as project:
            for image, label in labels.items():
                assert project.image(image).is_file()
                assert project.state.images[image].label in ([label] if label else ids.values())
    assert not [path for path in (tmp_path / "project").iterdir() if path.name.startswith(".")]


def change_until_killed(client, files, moment, ids, labels, rng):
    """Upload and relabel; `labels` has what was acknowledged, None while a change is under way."""
    try:
        for i in range(10_000):
            unique = files[i % len(files)] + struct.pack(">HH", moment, i)
            status, found = client.upload(unique, ids["one"])
            if status == 200:
                labels[found["image"]] = ids["one"]
            if i % 3 == 0 and labels:
                image = rng.choice(sorted(labels)[-20:])
                labels[image] = None
                client.json("POST", "/api/edit/label_images", {"images": [image], "label": ids["two"]})
                labels[image] = ids["two"]
    except (OSError, http.client.HTTPException, json.JSONDecodeError):
        pass
