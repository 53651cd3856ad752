"""A model hub on this machine: the part of the Hugging Face hub's protocol that downloads use.

`Hub(folder)` serves folder/OWNER/NAME/... as repositories. `faults` makes it fail: "cut" closes it after
half of each large file, once; "slow" sends little by little; "other" changes a byte of each large file.
"""

import hashlib
import json
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = 1000  # bytes from which on a file is stored as the hub stores large ones, by its SHA-256


class Hub(ThreadingHTTPServer):
    """A hub that listens on a free port of this machine."""

    daemon_threads = True

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.faults, self.requests, self.cut = Path(folder), set(), [], set()
        self.pause = 0.05  # seconds after each fifth of a file, where it is "slow"

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body):
        path = unquote(urlsplit(self.path).path).strip("/")
        self.server.requests.append((self.command, path, self.headers.get("Range")))
        parts = path.split("/")
        if parts[:2] == ["api", "models"]:
            return self.describe("/".join(parts[2:4]))
        if len(parts) > 4 and parts[2] == "resolve":
            return self.send_file("/".join(parts[:2]), "/".join(parts[4:]), body)
        return self.fail(404, "EntryNotFound")

    def fail(self, status, code):
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def describe(self, repository):
        root = self.server.folder / repository
        if not root.is_dir():
            return self.fail(404, "RepoNotFound")
        siblings = []
        for file in sorted(file for file in root.rglob("*") if file.is_file()):
            content = file.read_bytes()
            about = {"rfilename": file.relative_to(root).as_posix(), "size": len(content), "blobId": "0" * 40}
            if len(content) >= LARGE:
                digest = hashlib.sha256(content).hexdigest()
                about["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 130}
            siblings.append(about)
        answer = json.dumps({"id": repository, "modelId": repository, "sha": COMMIT, "siblings": siblings})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())
        return None

    def send_file(self, repository, name, body):
        file = self.server.folder / repository / name
        if not file.is_file():
            return self.fail(404, "EntryNotFound")
        content = file.read_bytes()
        etag = hashlib.sha256(content).hexdigest()
        large, faults = len(content) >= LARGE, self.server.faults
        if large and "other" in faults:
            content = content[:-1] + bytes([content[-1] ^ 1])
        start = 0
        if span := self.headers.get("Range"):
            start = int(span.removeprefix("bytes=").split("-")[0])
        self.send_response(206 if span else 200)
        self.send_header("ETag", f'"{etag}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(content) - start))
        if span:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if not body:
            return None
        if large and "cut" in faults and name not in self.server.cut:
            self.server.cut.add(name)
            self.wfile.write(content[start : len(content) // 2])
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(2)
            return None
        step = max(1, len(content) // 5) if "slow" in faults else len(content) or 1
        for place in range(start, len(content), step):
            self.wfile.write(content[place : place + step])
            self.wfile.flush()
            time.sleep(self.server.pause if "slow" in faults else 0)
        return None


@contextmanager
def serving(folder):
    """Run a hub while a test lasts."""
    hub = Hub(folder)
    thread = Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
