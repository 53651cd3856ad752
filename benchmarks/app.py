"""The page and the server, measured: answers, figures, load, hostile uploads, kill -9.

    python benchmarks/app.py [--data ../shared/data] [--only start,label,serve,uploads,kills,weight]

Times are of this machine, with nothing else running; each row prints what is asked beside what was found.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import random
import re
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlencode

import numpy as np

from prolip.app.page import STATIC
from prolip.app.project import Project
from prolip.data.builtin import builtin
from prolip.features import load_image

MAIN = [sys.executable, "-c", "from prolip.cli import main; main()"]


def show(figure, asked, found):
    print(f"| {figure} | {asked} | {found} |", flush=True)


@contextmanager
def program(*arguments, errors=None):
    """A command of prolip that serves; yields the process, its port and its token."""
    run = subprocess.Popen([*MAIN, *map(str, arguments)], stderr=subprocess.PIPE, text=True)
    line = run.stderr.readline()
    found = re.search(r"127\.0\.0\.1:(\d+)/(?:#token=(\S+))?", line)
    assert found, line + run.stderr.read()
    told = []
    reader = threading.Thread(target=lambda: told.extend(run.stderr))
    reader.start()
    try:
        yield run, int(found[1]), found[2] or ""
    finally:
        run.terminate()
        run.wait()
        reader.join()
        if errors is not None:
            errors += told


class Client:
    """One kept connection."""

    def __init__(self, port, token):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.token = token

    def __call__(self, method, path, body=None, headers=()):
        """Status and body of an answer."""
        sent = {"Authorization": f"Bearer {self.token}", **dict(headers)}
        try:
            self.connection.request(method, path, body, {k: v for k, v in sent.items() if v is not None})
            answer = self.connection.getresponse()
            return answer.status, answer.read()
        except (http.client.HTTPException, ConnectionError):
            self.connection.close()
            raise

    def json(self, method, path, value=None):
        """The same with JSON in and out, where nothing may go wrong."""
        status, answer = self(method, path, None if value is None else json.dumps(value))
        assert status == 200, (status, answer)
        return json.loads(answer)

    def upload(self, data, label=None, name="a.png", **more):
        """Send a picture to the page's server."""
        asked = {"name": name, **({} if label is None else {"label": label})}
        return self("POST", f"/api/images?{urlencode(asked)}", data, **more)


def encoded(image, kind="JPEG"):
    made = io.BytesIO()
    image.save(made, kind, quality=90)
    return made.getvalue()


def pictures(data, classes, per_class):
    """Files of photos (or of built-in textures), class by class: {name: [bytes]}, and one that is unseen."""
    if data is None:
        drawn = builtin("textures", per_class)
        found = {name: [] for name in drawn.classes[:classes]}
        for image, label in zip(drawn.images, drawn.labels, strict=True):
            if label < classes:
                found[drawn.classes[label]].append(encoded(image))
        return found, encoded(builtin("textures", 1, split="test").images[1])
    folders = sorted(path for path in (Path(data) / "images" / "pets37" / "train").iterdir() if path.is_dir())
    found = {
        folder.name: [path.read_bytes() for path in sorted(folder.iterdir())[:per_class]]
        for folder in folders[:classes]
    }
    unseen = sorted((Path(data) / "images" / "pets37" / "test" / folders[1].name).iterdir())[0]
    return found, unseen.read_bytes()


def teach(port, token, photos, connections=4):
    """Upload all, as the page does; class ids by name."""
    client = Client(port, token)
    ids = {name: client.json("POST", "/api/classes", {"name": name})["classes"][0] for name in photos}
    work = [(data, ids[name]) for name, files in photos.items() for data in files]
    local = threading.local()

    def send(job):
        if not hasattr(local, "client"):
            local.client = Client(port, token)
        status, answer = local.client.upload(*job)
        assert status == 200, answer
        return json.loads(answer)["image"]

    with ThreadPoolExecutor(connections) as pool:
        return ids, list(pool.map(send, work))


def start(data):
    """From the command to the first answer, as often as it takes to see how it varies."""
    photos, unseen = pictures(data, 3, 8)
    times = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            with program("app", Path(folder) / "p", "--port", 0, "--no-browser") as (_, port, token):
                teach(port, token, photos)
                client = Client(port, token)
                while not _answered_by_all(client, unseen):
                    time.sleep(0.02)
                times.append(time.perf_counter() - began)
    found = f"{statistics.median(times):.1f} s (worst {max(times):.1f})"
    show("from `prolip app` to the first answer, 3 classes x 8 photos", "10 s", found)


def _answered_by_all(client, unseen):
    """Whether an answer comes from a model of all three classes."""
    status, answer = client("POST", "/api/try", unseen)
    return status == 200 and len(json.loads(answer)["answers"]) == 3


def label(data):
    """From a changed label to the event with new figures."""
    photos, _ = pictures(None, 10, 20)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _, port, token = stack.enter_context(program("app", folder / "p", "--port", 0, "--no-browser"))
        ids, images = teach(port, token, photos)
        client = Client(port, token)
        while client.json("GET", "/api/project")["figures"].get("judged") != 200:
            time.sleep(0.1)
        stream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        stream.request("GET", "/api/events", headers={"Authorization": f"Bearer {token}"})
        events, times, labels = stream.getresponse(), [], list(ids.values())
        for i in range(20):
            time.sleep(0.6 if i % 2 else 0.05)  # also in the middle of slow figures
            began = time.perf_counter()
            client.json("POST", "/api/label", {"images": [images[i]], "label": labels[(i + 3) % 10]})
            revision = client.json("GET", "/api/project")["revision"]
            while True:
                line = events.readline()
                event = json.loads(line[5:]) if line.startswith(b"data:") else {"type": "none"}
                if event["type"] == "figures" and event["revision"] >= revision:
                    break
            times.append(time.perf_counter() - began)
        stream.close()
    found = f"{statistics.median(times):.2f} s (worst of 20: {max(times):.2f})"
    show("from a changed label to new figures, 10 classes x 20", "0.5 s", found)


def serve(data):
    """Single small pictures over 8 connections, beside the encoder on the same files and on ready pixels."""
    from prolip.api import FewShotClassifier
    from prolip.features import extract

    drawn = builtin("textures", 40)
    files = [encoded(image) for image in drawn.images]
    clf = FewShotClassifier("offline", store=False)
    clf.fit(drawn.images[::5], [drawn.classes[k] for k in drawn.labels[::5]])
    encoder = clf.model_.encoder
    pixels = np.stack([encoder.preprocess.centre(load_image(file)) for file in files[: encoder.batch_size]])

    def bare(seconds=4.0):
        """Pictures a second, and processor seconds for each."""
        began, used, count = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - began < seconds:
            encoder.encode(pixels)
            count += len(pixels)
        return count / (time.perf_counter() - began), (time.process_time() - used) / count

    def from_files(paths):
        """Pictures a second from files to features, without a server."""
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
        "`serve`: single small images over 8 connections, beside the bare encoder",
        "at least 0.7 of it; p99 below 5 x p50",
        f"{rate:.0f} a second; the encoder from the same files {whole:.0f}: {rate / whole:.2f}; its tower on "
        f"ready pixels {base:.0f}: {rate / base:.2f}; p50 {p50:.0f} ms, p99 {p99:.0f} ms: "
        f"{p99 / p50:.1f} x; processor time of an answer {1000 * used / len(times):.1f} ms, "
        f"of the bare tower {1000 * tower:.1f} ms",
    )


def _load(port, token, files, connections=8, seconds=6.0):
    """Answers a second, and the time of each."""
    times, stop = [], time.perf_counter() + seconds

    def ask(number):
        client, i = Client(port, token), number
        while time.perf_counter() < stop:
            began = time.perf_counter()
            status, answer = client("POST", "/predict", files[i % len(files)], {"Content-Type": "image/jpeg"})
            assert status == 200, answer
            times.append(time.perf_counter() - began)
            i += 1

    began = time.perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(ask, range(connections)))
    return len(times) / (time.perf_counter() - began), times


def bomb(side=30_000):
    """A PNG that claims 900 megapixels and has a few hundred bytes."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    idat = chunk(b"IDAT", zlib.compress(bytes(10_000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + idat + chunk(b"IEND", b"")


def uploads(count):
    """Many uploads, hostile ones among them."""
    drawn = builtin("textures", 20)
    good = [encoded(image) for image in drawn.images]
    rng = random.Random(0)
    hostile = [
        lambda c: c.upload(bomb(), name="bomb.png"),
        lambda c: c.upload(rng.choice(good)[: rng.randrange(1, 2000)], name="cut.jpg"),
        lambda c: c.upload(rng.choice(good), name="../" * rng.randrange(1, 20) + "tmp/evil\x00.jpg"),
        lambda c: c.upload(rng.randbytes(rng.randrange(10_000))),
        lambda c: c.upload(b"<html><script>alert(1)</script>", name="a.svg"),
        lambda c: c.upload(b"%!PS-Adobe-3.0 EPSF-3.0\n"),
        lambda c: c.upload(rng.choice(good), headers={"Authorization": None}),
        lambda c: c.upload(rng.choice(good), headers={"Authorization": "Bearer guess"}),
        lambda c: c.upload(rng.choice(good), headers={"Host": "evil.example"}),
        lambda c: c.upload(rng.choice(good), headers={"Origin": "http://evil.example"}),
        lambda c: c.upload(rng.choice(good), label="999"),
        lambda c: c.upload(rng.choice(good), label="../../etc"),
        lambda c: c("POST", "/api/label", rng.randbytes(50)),
        lambda c: c("POST", "/api/classes", b'{"name": ' + b"[" * 5000),
        lambda c: c("GET", f"/api/images/..%2f..%2f{rng.randrange(99)}"),
        lambda c: c("POST", "/api/images", b"x", {"Content-Length": str(1 << 45)}),
        lambda c: c("PUT", "/api/project", b"x"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        around, told = Path(folder), []
        with program("app", around / "p", "--port", 0, "--no-browser", errors=told) as (run, port, token):
            client = Client(port, token)
            client.json("POST", "/api/classes", {"name": "one"})
            outcomes, memory, lock = Counter(), [], threading.Lock()

            def work(number):
                client = Client(port, token)
                for i in range(number, count, 4):
                    try:
                        if i % 2:
                            status, _ = client.upload(rng.choice(good), "1")
                        else:
                            status, _ = rng.choice(hostile)(client)
                    except (ConnectionError, http.client.HTTPException):
                        status = "closed"
                    with lock:
                        outcomes[status] += 1
                        if i % (count // 10) == 0:
                            memory.append(_resident(run.pid))

            with ThreadPoolExecutor(4) as pool:
                list(pool.map(work, range(4)))
            client = Client(port, token)
            kept = client.json("GET", "/api/project")["images"]
        outside = [path.name for path in around.iterdir() if path.name != "p"]
        inside = [path.name for path in (around / "p").iterdir()]
    tracebacks = sum("Traceback" in line for line in told)
    late = memory[2:]
    found = (
        f"{tracebacks} tracebacks, {len(outside)} files outside; memory {min(late)} to {max(late)} MB after "
        f"the first fifth; answers {dict(sorted(outcomes.items(), key=str))}; {len(kept)} pictures kept; "
        f"the project's folder holds {', '.join(sorted(inside))}"
    )
    show(f"{count} uploads, every second hostile", "0 tracebacks, nothing outside, memory flat", found)


def _resident(pid):
    """MB of memory that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6)


def _processor(pid):
    """Processor seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def kills(count):
    """Kill -9 while it is used; then look whether all that was answered as kept is there."""
    drawn = builtin("textures", 30)
    files = [encoded(image) for image in drawn.images]
    lost, told_kept, rng = 0, 0, random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        place, kept, labels = Path(folder) / "p", set(), {}
        for moment in range(count):
            with program("app", place, "--port", 0, "--no-browser") as (run, port, token):
                client = Client(port, token)
                known = client.json("GET", "/api/project")["classes"]
                names = {row["name"]: key for key, row in known.items()}
                for name in ("one", "two"):
                    if name not in names:
                        names[name] = client.json("POST", "/api/classes", {"name": name})["classes"][0]
                threading.Timer(rng.uniform(0.05, 2.5), os.kill, (run.pid, signal.SIGKILL)).start()
                try:
                    for i in range(10_000):
                        fresh = files[i % len(files)] + struct.pack(">HH", moment, i)  # no two are the same
                        status, answer = client.upload(fresh, names["one"])
                        if status == 200:
                            image = json.loads(answer)["image"]
                            kept.add(image)
                            labels[image] = names["one"]
                        if i % 3 == 0 and kept:
                            image = rng.choice(sorted(kept)[-20:])
                            labels.pop(image, None)  # until it is answered, either label is right
                            client.json("POST", "/api/label", {"images": [image], "label": names["two"]})
                            labels[image] = names["two"]
                except (ConnectionError, http.client.HTTPException, OSError):
                    pass
            with Project.open(place) as project:
                state = project.state
                lost += sum(key not in state.images or not project.image(key).is_file() for key in kept)
                there = [(state.images[key].label, label) for key, label in labels.items() if key in kept]
                lost += sum(found != label for found, label in there)
        told_kept = len(kept)
        left = [path.name for path in place.iterdir() if path.name.startswith(".")]
    show(
        f"kill -9 at {count} moments",
        "all that was shown as kept is there",
        f"{lost} of {told_kept} pictures and {len(labels)} labels lost; left behind: {left or 'nothing'}",
    )


def weight(_):
    files = [path for path in STATIC.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    show("page weight", "below 300 kB, no build", f"{size / 1000:.0f} kB in {len(files)} files")


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--data", help="the shared data, for photos in the place of drawn pictures")
    parser.add_argument("--uploads", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--only", default="start,label,serve,uploads,kills,weight")
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    print("| figure | asked | found |\n| --- | --- | --- |")
    parts = {
        "start": lambda: start(given.data),
        "label": lambda: label(given.data),
        "serve": lambda: serve(given.data),
        "uploads": lambda: uploads(given.uploads),
        "kills": lambda: kills(given.kills),
        "weight": lambda: weight(None),
    }
    for name in given.only.split(","):
        parts[name]()


if __name__ == "__main__":
    main()
