"""A web page that classifies images in the browser, on ONNX Runtime Web; nothing is sent anywhere.

    index.html          the page: drop, paste, choose or film an image
    classifier.onnx     the model, as `onnx.py` writes it: the image goes in as it is
    ort*                the runtime, where `runtime` names a folder; otherwise the page loads it from a CDN

The page fetches the model and the runtime by their SHA-384, and its content security policy allows no other
connection. A single file has both inside, compressed, and opens from the disk, where browsers fetch nothing.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from prolip.core.arguments import as_path
from prolip.core.errors import UsageError
from prolip.io.reading import read_bytes
from prolip.io.writing import write_bytes

VERSION = "1.30.0"
CDN = f"https://cdn.jsdelivr.net/npm/onnxruntime-web@{VERSION}/dist/"
# Files of the package onnxruntime-web, by their part in the page: the name, and the hash of this version.
RUNTIME = {
    "script": (
        "ort.wasm.bundle.min.mjs",
        "sha384-PLWz+nHEVHpjwBsO0YVdvQj6n5814Iv8E3b8FG0Rp/uIAtjFMCKOpP66iPzedrIG",
    ),
    "wasm": (
        "ort-wasm-simd-threaded.wasm",
        "sha384-vjBJ1z7qrhkTyYsNqKeF6c7N+nOJSU94czEo+tvZcu8G75JparGq9kB+kTnEUNVM",
    ),
}
_PAGE = Path(__file__).with_name("static") / "web.html"
_THEME = Path(__file__).parents[1] / "app" / "static" / "lib" / "theme.css"


@dataclass(frozen=True)
class WebOptions:
    """Where the page finds its parts."""

    runtime: Path | None = None  # a folder with the package onnxruntime-web; None loads it from a CDN
    single_file: bool = False  # whether everything is inside of index.html
    base_url: str | None = None  # where the other files are; None is beside the page

    @classmethod
    def of(cls, runtime: Any, single_file: bool, base_url: str | None) -> WebOptions | None:
        """Return checked options, or None where none is given."""
        if runtime is None and not single_file and base_url is None:
            return None
        return cls(None if runtime is None else as_path(runtime, "runtime"), single_file, base_url)

    def __post_init__(self) -> None:
        if self.single_file and self.runtime is None:
            raise UsageError(
                'single_file=True needs the files of ONNX Runtime Web: set runtime="DIR" to an unpacked '
                f"onnxruntime-web (`npm pack onnxruntime-web@{VERSION}` downloads it)"
            )
        if self.single_file and self.base_url is not None:
            raise UsageError("single_file=True leaves nothing to load: leave out the base URL")
        if self.base_url is not None and urlsplit(self.base_url).scheme not in ("http", "https"):
            raise UsageError(f"a base URL begins with https:// or http://, got {self.base_url!r}")
        if self.runtime is not None:
            for name, _ in RUNTIME.values():
                self.runtime_file(name)

    def runtime_file(self, name: str) -> Path:
        """Return a file of the package, in the folder itself or in its `dist`."""
        assert self.runtime is not None
        for folder in (self.runtime, self.runtime / "dist", self.runtime / "package" / "dist"):
            if (folder / name).is_file():
                return folder / name
        raise UsageError(
            f"{self.runtime} has no {name}: name the folder of an unpacked onnxruntime-web, like {VERSION}"
        )


def write_page(folder: Path, classes: Sequence[Any], options: WebOptions) -> None:
    """Write the page into a folder that has classifier.onnx, which a single file has inside."""
    model = folder / "classifier.onnx"
    contents = {"model": read_bytes(model)}
    if options.runtime is not None:
        contents |= {part: read_bytes(options.runtime_file(name)) for part, (name, _) in RUNTIME.items()}
    if options.single_file:
        parts = {part: {"data": _packed(content)} for part, content in contents.items()}
        sources = set()
    else:
        base = (options.base_url or ".").rstrip("/") + "/"
        names = {"model": model.name, **{part: name for part, (name, _) in RUNTIME.items()}}
        for part in contents.keys() - {"model"}:
            write_bytes(folder / names[part], contents[part])
        parts = {
            part: {"url": base + names[part], "integrity": _integrity(content)}
            for part, content in contents.items()
        }
        for part, (name, integrity) in RUNTIME.items():
            parts.setdefault(part, {"url": CDN + name, "integrity": integrity})
        sources = {_origin(part["url"]) for part in parts.values()}
    page = {"labels": [str(name).replace("_", " ") for name in classes], "parts": parts}
    # "</script>" in a name would end the element that holds the names.
    described = json.dumps(page, ensure_ascii=False).replace("<", "\\u003c")
    text = _PAGE.read_text(encoding="utf-8")
    for mark, value in (
        ("{{sources}}", " ".join(sorted(sources)) or "'none'"),
        ("{{theme}}", _THEME.read_text(encoding="utf-8")),
        ("{{page}}", described),
    ):
        text = text.replace(mark, value)
    write_bytes(folder / "index.html", text.encode())


def _integrity(content: bytes) -> str:
    return f"sha384-{base64.b64encode(hashlib.sha384(content).digest()).decode()}"


def _packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


def _origin(url: str) -> str:
    """Return what a content security policy calls the origin of a URL."""
    split = urlsplit(url)
    return f"{split.scheme}://{split.netloc}" if split.netloc else "'self'"
