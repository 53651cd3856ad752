"""The page and the server: the first prediction, new figures, and load beside the encoder without a server.

python benchmarks/app.py [--data data] [--only start label serve weight]
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlencode

import numpy as np

from prolip.app.responses import STATIC
from prolip.data import draw_textures
from prolip.features import load_image

PROLIP = [sys.executable, "-m", "prolip"]


def show(what, measured):
    print(f"{what}: {measured}", flush=True)


@contextmanager
def program(*arguments):
    """A command of prolip that serves; yields the process, its port and its token."""
    run = subprocess.Popen([*PROLIP, *map(str, arguments)], stderr=subprocess.PIPE, text=True)
    line = run.stderr.readline()
    found = re.search(r"127\.0\.0\.1:(\d+)/(?:#token=(\S+))?", line)
    assert found, line + run.stderr.read()
    reader = threading.Thread(target=run.stderr.read)
    reader.start()
    try:
        yield run, int(found[1]), found[2] or ""
    finally:
        run.terminate()
        run.wait()
        reader.join()


class Client:
    """One connection, which stays open."""

    def __init__(self, port, token):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.token = token

    def __call__(self, method, path, body=None, headers=()):
        """Return the status and the body of a response."""
        sent = {"Authorization": f"Bearer {self.token}", **dict(headers)}
        try:
            self.connection.request(method, path, body, {k: v for k, v in sent.items() if v is not None})
            response = self.connection.getresponse()
            return response.status, response.read()
        except (http.client.HTTPException, ConnectionError):
            self.connection.close()
            raise

    def json(self, method, path, value=None):
        """Send and receive JSON; the call must succeed."""
        status, body = self(method, path, None if value is None else json.dumps(value))
        assert status == 200, (status, body)
        return json.loads(body)

    def upload(self, data, label=None, name="a.png", **more):
        """Upload an image."""
        query = {"name": name, **({} if label is None else {"label": label})}
        return self("POST", f"/api/images?{urlencode(query)}", data, **more)


def encoded(image, kind="JPEG"):
    made = io.BytesIO()
    image.save(made, kind, quality=90)
    return made.getvalue()


def image_files(data, classes, per_class):
    """Files of photos (or of built-in textures), class by class: {name: [bytes]}, and one that is unseen."""
    if data is None:
        drawn = draw_textures(per_class)
        found = {name: [] for name in drawn.classes[:classes]}
        for image, label in zip(drawn.images, drawn.labels, strict=True):
            if label < classes:
                found[drawn.classes[label]].append(encoded(image))
        return found, encoded(draw_textures(1, split="test").images[1])
    folders = sorted(path for path in (Path(data) / "images" / "pets37" / "train").iterdir() if path.is_dir())
    found = {
        folder.name: [path.read_bytes() for path in sorted(folder.iterdir())[:per_class]]
        for folder in folders[:classes]
    }
    unseen = sorted((Path(data) / "images" / "pets37" / "test" / folders[1].name).iterdir())[0]
    return found, unseen.read_bytes()


def upload_all(port, token, photos, connections=4):
    """Upload all images as the page does; return class ids by name, and image ids."""
    client = Client(port, token)
    ids = {name: client.json("POST", "/api/edit/add_class", {"name": name})["classes"][0] for name in photos}
    work = [(data, ids[name]) for name, files in photos.items() for data in files]
    local = threading.local()

    def send(job):
        if not hasattr(local, "client"):
            local.client = Client(port, token)
        status, body = local.client.upload(*job)
        assert status == 200, body
        return json.loads(body)["image"]

    with ThreadPoolExecutor(connections) as pool:
        return ids, list(pool.map(send, work))


def start(data):
    """From the command to the first prediction of a model of all classes."""
    photos, unseen = image_files(data, 3, 8)
    times = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            with program("app", Path(folder) / "p", "--port", 0, "--no-browser") as (_, port, token):
                upload_all(port, token, photos)
                client = Client(port, token)
                while not _knows_all_classes(client, unseen):
                    time.sleep(0.02)
                times.append(time.perf_counter() - began)
    found = f"{statistics.median(times):.1f} s (worst {max(times):.1f})"
    show("from `prolip app` to the first prediction, 3 classes x 8 photos", found)


def _knows_all_classes(client, unseen):
    """Whether the model that predicts has all three classes."""
    status, body = client("POST", "/api/try", unseen)
    return status == 200 and len(json.loads(body)["top"]) == 3


def label(data):
    """From a changed label to the event with new figures."""
    photos, _ = image_files(None, 10, 20)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _, port, token = stack.enter_context(program("app", folder / "p", "--port", 0, "--no-browser"))
        ids, images = upload_all(port, token, photos)
        client = Client(port, token)
        while len(client.json("GET", "/api/project")["figures"].get("held_out", ())) != 200:
            time.sleep(0.1)
        stream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        stream.request("GET", "/api/events", headers={"Authorization": f"Bearer {token}"})
        events, times, labels = stream.getresponse(), [], list(ids.values())
        for i in range(20):
            time.sleep(0.6 if i % 2 else 0.05)  # also in the middle of slow figures
            began = time.perf_counter()
            client.json(
                "POST", "/api/edit/label_images", {"images": [images[i]], "label": labels[(i + 3) % 10]}
            )
            revision = client.json("GET", "/api/project")["revision"]
            while True:
                line = events.readline()
                event = json.loads(line[5:]) if line.startswith(b"data:") else {"type": "none"}
                if event["type"] == "figures" and event["revision"] >= revision:
                    break
            times.append(time.perf_counter() - began)
        stream.close()
    found = f"{statistics.median(times):.2f} s (worst of 20: {max(times):.2f})"
    show("from a changed label to new figures, 10 classes x 20", found)


def serve(data):
    """Single small images over 8 connections, beside the encoder on the same files and on ready pixels."""
    from prolip import FewShotClassifier
    from prolip.features import extract

    drawn = draw_textures(40)
    files = [encoded(image) for image in drawn.images]
    clf = FewShotClassifier("offline", store=False)
    clf.fit(drawn.images[::5], [drawn.classes[k] for k in drawn.labels[::5]])
    encoder = clf.model_.encoder
    pixels = np.stack([encoder.preprocess.centre(load_image(file)) for file in files[: encoder.batch_size]])

    def bare(seconds=4.0):
        """Images a second, and processor seconds for each."""
        began, used, count = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - began < seconds:
            encoder.encode(pixels)
            count += len(pixels)
        return count / (time.perf_counter() - began), (time.process_time() - used) / count

    def from_files(paths):
        """Images a second from files to features, without a server."""
        began = time.perf_counter()
        extract(encoder, paths, store=None)
        return len(paths) / (time.perf_counter() - began)

    with tempfile.TemporaryDirectory() as folder:
        clf.save(Path(folder) / "textures")
        paths = [Path(folder) / f"{i}.jpg" for i in range(len(files))]
        for path, file in zip(paths, files, strict=True):
            path.write_bytes(file)
        with program("serve", Path(folder) / "textures", "--port", 0) as (run, port, token):
            bare(1.0)
            rates, encoded_rates, served, times, used = [bare()], [from_files(paths)], [], [], 0.0
            for _ in range(3):
                before = _processor(run.pid)
                rate, found = _load(port, token, files)
                used += _processor(run.pid) - before
                served.append(rate)
                times += found
                rates.append(bare())
                encoded_rates.append(from_files(paths))
    base, tower = (statistics.median(column) for column in zip(*rates, strict=True))
    rate, whole = statistics.median(served), statistics.median(encoded_rates)
    p50, p99 = (1000 * float(np.quantile(times, q)) for q in (0.5, 0.99))
    show(
        "`prolip serve`, single small images over 8 connections",
        f"{rate:.0f} a second; the encoder from the same files {whole:.0f}: {rate / whole:.2f}; its tower on "
        f"ready pixels {base:.0f}: {rate / base:.2f}; p50 {p50:.0f} ms, p99 {p99:.0f} ms: "
        f"{p99 / p50:.1f} x; processor time of a response {1000 * used / len(times):.1f} ms, "
        f"of the bare tower {1000 * tower:.1f} ms",
    )


def _load(port, token, files, connections=8, seconds=6.0):
    """Responses a second, and the time of each."""
    times, stop = [], time.perf_counter() + seconds

    def call(number):
        client, i = Client(port, token), number
        while time.perf_counter() < stop:
            began = time.perf_counter()
            status, body = client("POST", "/predict", files[i % len(files)], {"Content-Type": "image/jpeg"})
            assert status == 200, body
            times.append(time.perf_counter() - began)
            i += 1

    began = time.perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(call, range(connections)))
    return len(times) / (time.perf_counter() - began), times


def _processor(pid):
    """Processor seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def weight(_):
    files = [path for path in STATIC.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    show("page weight", f"{size / 1000:.0f} kB in {len(files)} files")


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--data", help="a folder with images/pets37; drawn textures without it")
    parts = {"start": start, "label": label, "serve": serve, "weight": weight}
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts))
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for name in options.only:
        parts[name](options.data)


if __name__ == "__main__":
    main()
