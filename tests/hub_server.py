"""A model hub on this machine: the part of the Hugging Face hub's protocol that downloads and uploads use.

`Hub(folder)` serves folder/OWNER/NAME/... as repositories. `faults` makes it fail: "slow" sends little by
little; "other" changes a byte of each large file; "commit" refuses commits. `tokens` has who requested files.
Whoever sends TOKEN is the user OWNER, and may write; `visibility` has that of new repositories.
"""

import base64
import hashlib
import json
import time
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN, OWNER = "hf_secret", "me"
LARGE = 1000  # bytes from which on a file is stored as the hub stores large ones, by its SHA-256


@cache
def digest_of(file, _time):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def digest(file):
    return digest_of(file, file.stat().st_mtime_ns)


class Hub(ThreadingHTTPServer):
    """A hub that listens on a free port of this machine."""

    daemon_threads = True

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.faults, self.requests = Path(folder), set(), []
        self.pause = 0.05  # seconds after each fifth of a file, where it is "slow"
        self.tokens = set()
        self.visibility, self.commits = {}, {}  # of repositories
        self.uploaded = {}  # large files by their SHA-256

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

    def read_body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers["Content-Length"]))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def do_PUT(self):
        path = self.path.strip("/")
        self.server.requests.append(("PUT", path, None))
        content = self.read_body()
        if path != f"lfs/{hashlib.sha256(content).hexdigest()}":
            return self.fail(400, "BadRequest")
        self.server.uploaded[path.removeprefix("lfs/")] = content
        return self.send_json({})

    def do_POST(self):
        path = unquote(urlsplit(self.path).path).strip("/")
        self.server.requests.append(("POST", path, None))
        content = self.read_body()
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.fail(401, "Unauthorized")
        parts = path.split("/")
        if path.endswith(".git/info/lfs/objects/batch"):
            return self.receive(json.loads(content)["objects"])
        if parts[-2:-1] == ["commit"]:
            return self.commit("/".join(parts[2:4]), content)
        given = json.loads(content)
        if path == "api/repos/create":
            repository = f"{given['organization'] or OWNER}/{given['name']}"
            if (self.server.folder / repository).exists():
                return self.send_json({"url": f"{self.server.address}/{repository}"}, 409)
            (self.server.folder / repository).mkdir(parents=True)
            self.server.visibility[repository] = given.get("visibility") or (
                "private" if given.get("private") else "public"
            )
            return self.send_json({"url": f"{self.server.address}/{repository}"})
        if path == "api/validate-yaml":
            return self.send_json({"errors": [], "warnings": []})
        if parts[-2:-1] == ["preupload"]:
            files = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["size"] >= LARGE else "regular",
                    "shouldIgnore": False,
                }
                for file in given["files"]
            ]
            return self.send_json({"files": files})
        return self.fail(404, "EntryNotFound")

    def receive(self, objects):
        """Say where to put large files."""
        actions = [{"upload": {"href": f"{self.server.address}/lfs/{each['oid']}"}} for each in objects]
        pairs = zip(objects, actions, strict=True)
        self.send_json({"transfer": "basic", "objects": [{**each, "actions": a} for each, a in pairs]})

    def commit(self, repository, content):
        """Apply a commit: lines of JSON."""
        if "commit" in self.server.faults:
            return self.fail(500, "Broken")
        root = self.server.folder / repository
        for line in map(json.loads, content.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                (root / value["path"]).write_bytes(base64.b64decode(value["content"]))
            elif line["key"] == "lfsFile":
                (root / value["path"]).write_bytes(self.server.uploaded[value["oid"]])
            elif line["key"] == "deletedFile":
                (root / value["path"]).unlink()
        sha = self.server.commits[repository] = hashlib.sha1(content).hexdigest()
        url = f"{self.server.address}/{repository}/commit/{sha}"
        return self.send_json({"commitUrl": url, "commitOid": sha, "success": True})

    def answer(self, body):
        path = unquote(urlsplit(self.path).path).strip("/")
        self.server.requests.append((self.command, path, self.headers.get("Range")))
        parts = path.split("/")
        if path == "api/whoami-v2":
            known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            return self.send_json({"name": OWNER}) if known else self.fail(401, "Unauthorized")
        if parts[:2] == ["api", "models"]:
            return self.describe("/".join(parts[2:4]), tree=parts[4:5] == ["tree"])
        if len(parts) > 4 and parts[2] == "resolve":
            return self.send_file("/".join(parts[:2]), "/".join(parts[4:]), body)
        return self.fail(404, "EntryNotFound")

    def fail(self, status, code):
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def describe(self, repository, tree):
        root = self.server.folder / repository
        if not root.is_dir():
            return self.fail(404, "RepoNotFound")
        siblings = []
        for file in sorted(file for file in root.rglob("*") if file.is_file()):
            size = file.stat().st_size
            about = {"rfilename": file.relative_to(root).as_posix(), "size": size, "blobId": "0" * 40}
            if size >= LARGE:
                about["lfs"] = {"sha256": digest(file), "size": size, "pointerSize": 130}
            siblings.append(about)
        if tree:
            files = [{"type": "file", "path": f["rfilename"], "oid": f["blobId"], **f} for f in siblings]
            lfs = [{**f, "lfs": {**f["lfs"], "oid": f["lfs"]["sha256"]}} if "lfs" in f else f for f in files]
            return self.send_json(lfs)
        sha = self.server.commits.get(repository, COMMIT)
        return self.send_json({"id": repository, "modelId": repository, "sha": sha, "siblings": siblings})

    def send_json(self, value, status=200):
        answer = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def send_file(self, repository, name, body):
        file = self.server.folder / repository / name
        if not file.is_file():
            return self.fail(404, "EntryNotFound")
        content = file.read_bytes()
        etag = digest(file)
        large, faults = len(content) >= LARGE, self.server.faults
        if large and "other" in faults:
            content = content[:-1] + bytes([content[-1] ^ 1])
        start = 0
        self.server.tokens.add(self.headers.get("Authorization"))
        if span := self.headers.get("Range"):
            start = int(span.removeprefix("bytes=").split("-")[0])
        self.send_response(206 if span else 200)
        self.send_header("ETag", f'"{etag}"')
        self.send_header("X-Repo-Commit", self.server.commits.get(repository, COMMIT))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(content) - start))
        if span:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if not body:
            return None
        step = max(1, len(content) // 5) if "slow" in faults else len(content) or 1
        for place in range(start, len(content), step):
            self.wfile.write(content[place : place + step])
            self.wfile.flush()
            time.sleep(self.server.pause if "slow" in faults else 0)
        return None


def point_to(address, monkeypatch):
    """Let the hub's library ask this address: what it makes of HF_ENDPOINT when it is imported."""
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)


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
