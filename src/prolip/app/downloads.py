"""What the page offers to download: the labelled photos, a report, and the model in every format."""

import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from prolip.api import save
from prolip.api.evaluate import evaluate_support
from prolip.api.grow import brief_curve
from prolip.app.figures import TrainedSnapshot
from prolip.app.project import Project
from prolip.core import UsageError
from prolip.export.formats import FORMATS
from prolip.export.web import download_runtime, find_runtime
from prolip.io.files import portable_name

KINDS = ("photos", "report", "prolip", *FORMATS)


def why_not(kind: str, project: Project, trained: TrainedSnapshot) -> str | None:
    """Say why a download cannot be made, or None."""
    model = trained.model
    if kind == "photos":
        labelled = any(row.label is not None for row in project.state.images.values())
        return None if labelled else "label an image first"
    if model is None:
        return "there is no model yet: add images to two classes first"
    if kind == "report":
        return None if model.confidence.held_out else "add a second image to each class first"
    return FORMATS[kind].why_not(model.fitted, model.encoder, download=False) if kind in FORMATS else None


def make(kind: str, project: Project, trained: TrainedSnapshot, folder: Path) -> Path:
    """Write a download into a folder; returns its file, which has the name that it is given."""
    name = folder / f"{portable_name(project.name)}-{kind}"
    if kind == "photos":
        return _zip(name, _photos(project))
    if kind == "report":
        page = name.with_name(f"{name.name}.html")
        page.write_text(_report(project, trained), encoding="utf-8")
        return page
    if kind == "prolip":
        save.save(trained.require_model(), name)
    else:
        runtime = (find_runtime() or download_runtime()) if kind == "web" else None
        save.export(trained.require_model(), name, [kind], runtime=runtime)
    if kind == "web":
        if (name / "classifier.onnx").exists():
            raise UsageError("this model is too large for one page: prolip export writes a folder")
        return (name / "index.html").rename(folder / f"{portable_name(project.name)}-page.html")
    made = (file for file in sorted(name.rglob("*")) if file.is_file())
    return _zip(name, ((file, file.relative_to(folder).as_posix()) for file in made))


def _zip(name: Path, files: Iterable[tuple[Path, str]]) -> Path:
    """Pack files under names. They are not compressed: photos and weights do not shrink."""
    packed = name.with_name(f"{name.name}.zip")
    with zipfile.ZipFile(packed, "w") as archive:
        for path, inside in files:
            archive.write(path, inside)
    return packed


def _photos(project: Project) -> Iterator[tuple[Path, str]]:
    """Yield labelled photos, a folder per class; below train/ and test/ where there are test images."""
    state, used = project.state, set[str]()
    has_tests = any(row.test for row in state.images.values())
    for image, row in state.images.items():
        if row.label is None or row.machine:  # a prediction that nobody confirmed
            continue
        folder, file = portable_name(state.classes[row.label].name), portable_name(row.name)
        if has_tests:
            folder = f"{'test' if row.test else 'train'}/{folder}"
        name = f"{folder}/{file}"
        if name.casefold() in used:  # another photo with this name
            name = f"{folder}/{image[:12]}-{file}"
        used.add(name.casefold())
        yield project.image(image), name


def _report(project: Project, trained: TrainedSnapshot) -> str:
    """Make the page of `prolip report` about the held-out training images."""
    from prolip.report import model_page

    model = trained.require_model()
    assert model.confidence.held_out is not None
    shown = [trained.training.images[i] for i in model.confidence.held_out.images]
    predictions = replace(
        evaluate_support(model),
        names=[trained.state.images[image].name for image in shown],
        images=[project.image(image) for image in shown],
    )
    return model_page(model, predictions, title=project.name, source="the project", curve=brief_curve(model))
