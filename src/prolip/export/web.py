"""A web page that classifies images in the browser, on ONNX Runtime Web; nothing is sent anywhere.

    index.html          the page: drop, paste, choose or film an image; the model is inside, so that it opens
                        from the disk by a double click
    classifier.onnx     the model, where it is too large to be inside: such a page needs a web host

The runtime is inside as well if its files are on this machine (`find_runtime`); otherwise the page loads them
from a CDN by their SHA-384, and needs a network. Its content security policy allows no other connection.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from prolip.core.errors import ModelError, UsageError, first_line
from prolip.io.files import cache_dir
from prolip.io.reading import read_bytes
from prolip.io.writing import write_bytes

VERSION = "1.30.0"
HOST = "https://cdn.jsdelivr.net"
CDN = f"{HOST}/npm/onnxruntime-web@{VERSION}/dist/"
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
INSIDE = 150_000_000  # bytes of a model that is put inside of the page


def find_runtime(folder: Path | None = None) -> Path | None:
    """Return the folder that has ONNX Runtime Web: in an unpacked package, or as it was downloaded."""
    for place in [folder, folder / "dist"] if folder else [cache_dir() / f"onnxruntime-web-{VERSION}"]:
        if all((place / name).is_file() for name, _ in RUNTIME.values()):
            return place
    if folder is not None:
        raise UsageError(f"{folder} has no onnxruntime-web, like {VERSION}: name the unpacked package")
    return None


def download_runtime() -> Path:
    """Download ONNX Runtime Web into the cache folder, and check it."""
    folder = cache_dir() / f"onnxruntime-web-{VERSION}"
    for name, integrity in RUNTIME.values():
        try:
            with urlopen(CDN + name, timeout=60) as response:
                content: bytes = response.read()
        except OSError as error:
            raise ModelError(f"{CDN}{name} cannot be downloaded: {first_line(error)}") from error
        if _integrity(content) != integrity:
            raise ModelError(f"{CDN}{name} has another content than expected")
        write_bytes(folder / name, content)
    return folder


def write_page(folder: Path, classes: Sequence[Any], runtime: Path | None = None) -> bool:
    """Write the page into a folder that has classifier.onnx; return whether the page has it inside."""
    model = read_bytes(folder / "classifier.onnx")
    inside = len(model) <= INSIDE
    parts = {
        part: {"data": _packed(read_bytes(runtime / name))}
        if runtime
        else {"url": CDN + name, "integrity": sha}
        for part, (name, sha) in RUNTIME.items()
    }
    parts["model"] = (
        {"data": _packed(model)} if inside else {"url": "./classifier.onnx", "integrity": _integrity(model)}
    )
    sources = " ".join(["'self'"] * (not inside) + [HOST] * (runtime is None)) or "'none'"
    page = {"labels": [str(name).replace("_", " ") for name in classes], "parts": parts}
    # "</script>" in a name would end the element that holds the names.
    described = json.dumps(page, ensure_ascii=False).replace("<", "\\u003c")
    text = files("prolip.export").joinpath("static", "web.html").read_text("utf-8")
    for mark, value in (
        ("{{sources}}", sources),
        ("{{theme}}", files("prolip").joinpath("static", "theme.css").read_text("utf-8")),
        ("{{page}}", described),
    ):
        text = text.replace(mark, value)
    write_bytes(folder / "index.html", text.encode())
    return inside


def _integrity(content: bytes) -> str:
    return f"sha384-{base64.b64encode(hashlib.sha384(content).digest()).decode()}"


def _packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()
