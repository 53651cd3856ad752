"""The code blocks of README.md and docs/, and a folder with drawn photos to run them in.

A page runs from top to bottom, in one folder and one Python namespace. Blocks `sh` and `python` are run; a
comment before a block may say otherwise:

    <!-- not run: REASON -->      it needs what a test does not have
    <!-- every extra: REASON -->  it runs in tests/full

Names that a page uses and does not define (features, a classifier) are those of `given`.
"""

import csv
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np

from prolip.data import draw_textures

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^(?:<!-- (not run|every extra): (.+?) -->\n)?```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
CLASSES = ["basset hound", "beagle", "cat", "dog", "fox", "tabby", "owl"]
STARTED = ("prolip serve", "prolip app")  # what runs until it is stopped


@dataclass(frozen=True)
class Block:
    """A code block of a page."""

    line: int
    language: str
    text: str
    condition: str | None  # "not run", "every extra"


def blocks(page):
    """The blocks of a page that have a language."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(text.count("\n", 0, found.start(3)) + 1, found[3], found[4], found[1])
        for found in BLOCK.finditer(text)
    ]


def draw(folder):
    """Photos under the names that the pages use: drawn textures, a kind for each class."""
    kinds = draw_textures(32).images

    def save(name, place, first, count, pattern="{}.jpg"):
        (folder / place).mkdir(parents=True, exist_ok=True)
        start = 32 * CLASSES.index(name) + first
        for i, image in enumerate(kinds[start : start + count]):
            image.resize((64, 64)).save(folder / place / pattern.format(i))

    for name in CLASSES[:6]:
        save(name, f"photos/train/{name}", 0, 8)
        save(name, f"photos/test/{name}", 8, 4)
        save(name, f"photos-for-testing/{name}", 12, 4)
        save(name, "pool", 16, 6, name + "-{}.jpg")
        for i, place in enumerate(("new", "unsorted", "archive")):
            save(name, place, 22 + i, 1, f"{name}.jpg")
    save("owl", "more-photos/owl", 0, 4)
    save("cat", "more-photos/cat", 25, 4)
    for name, other in (("cat", "a"), ("dog", "b")):
        save(name, ".", 30, 1, f"{name}.jpg")
        save(name, ".", 31, 1, f"{other}.jpg")
    train = sorted((folder / "photos" / "train").rglob("*.jpg"))
    with (folder / "list.csv").open("w", newline="") as file:
        rows = [(path.relative_to(folder).as_posix(), path.parent.name) for path in train]
        csv.writer(file).writerows([("path", "label"), *rows])
    with zipfile.ZipFile(folder / "photos.zip", "w") as archive:
        for path in train:
            archive.write(path, path.relative_to(folder / "photos" / "train"))
    (folder / "sentences.json").write_text(
        json.dumps({name: [f"an animal called {name}"] for name in CLASSES})
    )


def given():
    """Features and texts of a small problem, by the names that the pages use."""
    rng = np.random.default_rng(0)

    def unit(rows):
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    y = np.repeat(np.arange(3), 8)
    text = unit(rng.normal(size=(3, 16)))
    x, x_test = (unit(text[y] + 0.4 * rng.normal(size=(24, 16))) for _ in range(2))
    return {
        "x": x, "y": y, "text": text, "W": np.eye(16, dtype=np.float32), "b": None,
        "x_test": x_test, "y_test": y, "other_text": unit(rng.normal(size=(5, 16))),
    }  # fmt: skip


class Session:
    """What a reader does with a page, in the working folder."""

    def __init__(self, page, prolip, every_extra):
        self.page, self.prolip, self.every_extra = page, prolip, every_extra
        self.names = {"__name__": "__main__", **given()}
        self.port = free_port()
        self.server = None

    def run(self):
        """Run the page; return how many blocks ran."""
        ran = 0
        try:
            for block in blocks(self.page):
                if block.condition == "not run" or (block.condition and not self.every_extra):
                    continue
                if block.language == "python":
                    source = "\n" * block.line + block.text.replace(
                        "127.0.0.1:8000", f"127.0.0.1:{self.port}"
                    )
                    exec(compile(source, str(self.page), "exec"), self.names)  # a page of this repository
                elif block.language == "sh":
                    for i, line in enumerate(block.text.splitlines()):
                        self.shell(line, f"{self.page.name}:{block.line + 1 + i}")
                else:
                    continue
                ran += 1
        finally:
            self.stop()
        return ran

    def shell(self, line, place):
        """Run a line: a command of prolip in this process, anything else by bash."""
        line = line.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}").replace("9000", str(self.port))
        words = shlex.split(line, comments=True)
        if not words:
            return
        if line.startswith(STARTED):
            self.start(words, place)
        elif words[0] == "prolip" and not {"|", ">"} & set(words):
            found = [sorted(Path().glob(word)) if "*" in word else [word] for word in words[1:]]
            code, out, err = self.prolip(*(word for each in found for word in each))
            assert code == 0, f"{place}: {line}\n{out}{err}"
        else:
            path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
            done = subprocess.run(
                ["bash", "-ec", line], env={**os.environ, "PATH": path}, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{place}: {line}\n{done.stdout}{done.stderr}"

    def start(self, words, place):
        """Start a server in place of the one before it, and wait until it responds."""
        self.stop()
        rest = [word for word in words[1:] if word not in ("--port", str(self.port))]
        quiet = ["--no-browser"] if rest[0] == "app" else []
        command = [sys.executable, "-m", "prolip", *rest, "--port", str(self.port), *quiet]
        self.server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(300):
            assert self.server.poll() is None, f"{place}: {self.server.returncode}"
            try:
                urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=5).close()
                return
            except HTTPError as error:  # the page, which needs its token
                error.close()
                return
            except OSError:
                time.sleep(0.1)
        raise AssertionError(f"{place}: no response")

    def stop(self):
        """Stop the server, if one runs."""
        if self.server:
            self.server.terminate()
            self.server.wait(20)


def free_port():
    """A port that nothing listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fill(template, page):
    """Copy the folder; without `my-model` where the page makes it. Tutorials begin with nothing."""
    if page.parent.name == "tutorials":
        return
    shutil.copytree(template, ".", dirs_exist_ok=True)
    text = "\n".join(block.text for block in blocks(page))
    if re.search(r"my-model", text) and re.search(
        r"(-o|save\(\")[ ]?my-model", text.split("my-model")[0] + "my-model"
    ):
        shutil.rmtree("my-model")
