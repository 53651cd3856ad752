"""What the page offers to download: the labelled photos, a report, and the model in every format."""

import contextlib
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO

from prolip.api import save
from prolip.api.evaluate import evaluate_support
from prolip.api.grow import learning_curve
from prolip.api.model import AdaptedModel
from prolip.app.figures import TrainedSnapshot
from prolip.app.project import Project
from prolip.core import UsageError
from prolip.evaluate.curve import Curve
from prolip.export.formats import FORMATS
from prolip.export.web import download_runtime, find_runtime

BLOCK = 1 << 20  # bytes that are sent at once
NO_MODEL = "there is no model yet: add images to two classes first"
Made = tuple[IO[bytes], int]  # a file, which is deleted when it is closed, and its size


@dataclass(frozen=True)
class Download:
    """A file that can be made, or why it cannot."""

    ending: str  # of its name
    media_type: str
    why_not: str | None
    make: Callable[[], Made]


def downloads(project: Project, trained: TrainedSnapshot) -> dict[str, Download]:
    """Return the downloads of a project, by name."""
    model, state = trained.model, project.state
    labelled = any(row.label is not None for row in state.images.values())
    too_few = None if model and model.confidence.held_out else "add a second image to each class first"
    found = {
        "photos": Download(
            "photos.zip",
            "application/zip",
            None if labelled else "label an image first",
            lambda: _zip(project, _photos(project)),
        ),
        "report": Download(
            "report.html",
            "text/html",
            NO_MODEL if model is None else too_few,
            lambda: _report(project, trained),
        ),
    }
    for target in ("prolip", *FORMATS):
        why_not = NO_MODEL if model is None else None
        if model is not None and target in FORMATS:
            why_not = FORMATS[target].why_not(model.fitted, model.encoder, download=False)
        make = partial(_export, project, trained, target)
        found[target] = Download(f"{target}.zip", "application/zip", why_not, make)
    found["web"] = replace(found["web"], ending="page.html", media_type="text/html")
    return found


def file_name(name: str) -> str:
    """Replace what some system does not allow in a file name: keep letters and digits of any script, - . _"""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "project"


def blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the content of a file, and close it."""
    with contextlib.closing(file):
        while block := file.read(BLOCK):
            yield block


def _zip(project: Project, files: Iterable[tuple[Path, str]]) -> Made:
    """Pack files under names. They are not compressed: photos and weights do not shrink."""
    packed = tempfile.TemporaryFile(dir=project.folder)  # noqa: SIM115 - closed when it has been sent
    with zipfile.ZipFile(packed, "w") as archive:
        for path, name in files:
            archive.write(path, name)
    return _rewound(packed)


def _temporary(project: Project, content: bytes) -> Made:
    file = tempfile.TemporaryFile(dir=project.folder)  # noqa: SIM115 - closed when it has been sent
    file.write(content)
    return _rewound(file)


def _rewound(file: IO[bytes]) -> Made:
    size = file.seek(0, 2)
    file.seek(0)
    return file, size


def _photos(project: Project) -> Iterator[tuple[Path, str]]:
    """Yield labelled photos, a folder per class; below train/ and test/ where there are test images."""
    state, used = project.state, set[str]()
    has_tests = any(row.test for row in state.images.values())
    for image, row in state.images.items():
        if row.label is None:
            continue
        part = ["test" if row.test else "train"] if has_tests else []
        folder, file = file_name(state.classes[row.label].name), file_name(row.name)
        name = "/".join([*part, folder, file])
        if name.casefold() in used:  # another photo with this name
            name = "/".join([*part, folder, f"{image[:12]}-{file}"])
        used.add(name.casefold())
        yield project.image(image), name


def _export(project: Project, trained: TrainedSnapshot, target: str) -> Made:
    model, name = trained.require_model(), f"{file_name(project.name)}-{target}"
    with tempfile.TemporaryDirectory(dir=project.folder) as folder:
        made = Path(folder) / name
        if target == "prolip":
            save.save(model, made, card=True)
        else:
            runtime = (find_runtime() or download_runtime()) if target == "web" else None
            save.export(model, made, [target], runtime=runtime)
        if target == "web":
            if (made / "classifier.onnx").exists():
                raise UsageError("this model is too large for one page: prolip export writes a folder")
            return _temporary(project, (made / "index.html").read_bytes())
        files = sorted(file for file in made.rglob("*") if file.is_file())
        return _zip(project, ((file, file.relative_to(folder).as_posix()) for file in files))


def _report(project: Project, trained: TrainedSnapshot) -> Made:
    """Make the page of `prolip report` about the held-out training images."""
    from prolip.report import model_page

    model = trained.require_model()
    held_out, ids = evaluate_support(model), trained.training.images
    assert model.confidence.held_out is not None
    shown = [ids[i] for i in model.confidence.held_out.images]
    predictions = replace(
        held_out,
        names=[trained.state.images[image].name for image in shown],
        images=[project.image(image) for image in shown],
    )
    page = model_page(model, predictions, title=project.name, source="the project", curve=_curve(model))
    return _temporary(project, page.encode())


def _curve(model: AdaptedModel) -> Curve | str:
    """Return the learning curve, or why there is none."""
    try:
        return learning_curve(model)
    except UsageError as error:
        return f"Unknown: {error}."
