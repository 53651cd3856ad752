"""`prolip predict`: one image, or a million."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prolip.cli.common import (
    Base,
    Device,
    Json,
    NoStore,
    Saved,
    SkipBad,
    Store,
    TrustBase,
    load,
    report_skipped,
)
from prolip.cli.console import bar, percent, print_json, say, table

if TYPE_CHECKING:
    from prolip.api import AdaptedModel


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("predict")(predict)


def predict(
    saved: Saved,
    images: Annotated[
        list[str],
        typer.Argument(
            metavar="IMAGE_OR_DIR...", help="Images, or folders of them; - reads paths from standard input."
        ),
    ],
    top: Annotated[int, typer.Option(help="How many classes to show for each image.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A .csv or .jsonl to write to; a run that was stopped goes on."),
    ] = None,
    reject: Annotated[
        bool, typer.Option("--reject", help="No class for images that seem to belong to none.")
    ] = False,
    false_reject: Annotated[
        float | None,
        typer.Option(help="With --reject: what part of images that do belong may be refused; 0.05."),
    ] = None,
    false_accept: Annotated[
        float | None,
        typer.Option(help="Instead: what part of images of unknown, but similar classes may pass."),
    ] = None,
    test_time: Annotated[
        str | None,
        typer.Option(help="Adapt to each image first, on 64 views of it: prolip, or tpt (slow)."),
    ] = None,
    base: Base = None,
    trust_base: TrustBase = False,
    device: Device = "auto",
    store: Store = None,
    no_store: NoStore = False,
    skip_bad: SkipBad = False,
    json: Json = False,
) -> None:
    """Tell the class of images.

    prolip predict my-model new/*.jpg --top 3

    find /archive -name '*.jpg' | prolip predict my-model - --out answers.csv
    """
    from prolip.api.answer import Asked, answers, run_name
    from prolip.api.answer_file import AnswerFile, check_answers
    from prolip.core import UsageError
    from prolip.evaluate.reject import FALSE_REJECT

    if not reject and not (false_reject is None and false_accept is None):
        raise UsageError("--false-reject and --false-accept say how to --reject: add that option")
    asked = Asked(
        top, reject, FALSE_REJECT if false_reject is None else false_reject, false_accept, test_time
    )
    if out is not None:
        check_answers(out)
    clf = load(saved, device, False if no_store else store, skip_bad, base, trust_base)
    model = clf.model_
    named, total = _named(model, images)
    skipped: list[tuple[str, str]] = []

    def find(named: Iterable[tuple[str, Any]], total: int | None, progress: Any) -> Iterator[dict[str, Any]]:
        return answers(model, named, asked, clf.reading, skipped=skipped, total=total, progress=progress)

    progress_bar = bar("adapting" if test_time else "encoding", quiet=json)
    if out is None:
        with progress_bar as progress:
            shown = list(find(named, total, progress))
        report_skipped(skipped, json)
        _show(shown, json)
        return
    with AnswerFile(out, top, reject, run_name(model, asked)).opened() as file, progress_bar as progress:
        already = len(file.done)
        if already:
            say(f"{already} answers are in {out} already", quiet=json)
        left = None if total is None else max(0, total - already)
        written = file.write(find(_unanswered(named, file.done), left, progress))
    report_skipped(skipped, json)
    if json:
        print_json({"out": str(out), "written": written, "already": already, "skipped": len(skipped)})
    else:
        say(f"{written} answers written to {out}")


def _unanswered(named: Iterable[tuple[str, Any]], done: set[str]) -> Iterator[tuple[str, Any]]:
    """Those that have no answer yet, each once however often it is named."""
    seen = set(done)
    for name, image in named:
        if name not in seen:
            seen.add(name)
            yield name, image


def _named(model: AdaptedModel, sources: list[str]) -> tuple[Iterable[tuple[str, Any]], int | None]:
    """What to answer for, with the name of each, and how many; standard input is read as it comes."""
    from prolip.core.files import readable
    from prolip.data import list_images

    if not model.encoder.takes_pictures:
        rows = [
            (f"{readable(source)}:{i}", row)
            for source in sources
            for i, row in enumerate(model.encoder.read(source))
        ]
        return rows, len(rows)
    if sources == ["-"]:
        lines = (raw.rstrip("\r\n") for raw in sys.stdin)
        return ((readable(line), line) for line in lines if line), None
    listed = [str(path) for path in list_images(sources)]
    return ((readable(path), path) for path in listed), len(listed)


def _show(answers: list[dict[str, Any]], json: bool) -> None:
    if json:
        print_json(answers)
        return
    rows = []
    for answer in answers:
        ranked = ", ".join(f"{r['class']} {percent(r['probability'])}" for r in answer["top"])
        rows.append([str(answer["image"]), f"none of these ({ranked})" if answer.get("rejected") else ranked])
    table(None, ["image", "class, probability in %"], rows, right=9)
