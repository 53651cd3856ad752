"""`prolip predict`: one image, or a million."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prolip.cli.common import Device, Json, NoStore, Saved, SkipBad, Store, load, report_skipped
from prolip.cli.console import bar, percent, print_json, say, table

if TYPE_CHECKING:
    from prolip.api import AdaptedModel
    from prolip.evaluate.unlabelled import Evidence


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
    together: Annotated[
        bool,
        typer.Option(
            "--together", help="Classify all images together, where held-out labelled ones are helped by it."
        ),
    ] = False,
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
    from prolip.api.answer_file import AnswerFile
    from prolip.core import UsageError
    from prolip.evaluate.reject import FALSE_REJECT

    if not reject and not (false_reject is None and false_accept is None):
        raise UsageError("--false-reject and --false-accept say how to --reject: add that option")
    rate = FALSE_REJECT if false_reject is None else false_reject
    asked = Asked(top, reject, rate, false_accept, test_time, together)
    clf = load(saved, device, False if no_store else store, skip_bad)
    model = clf.model_
    file = None if out is None else AnswerFile(out, top, reject, run_name(model, asked))
    already = set() if file is None else file.done
    if already and together:
        raise UsageError(f"{out} has answers already, and --together answers all at once: name a new file")
    if already:
        say(f"{len(already)} answers are in {out} already", quiet=json)
    skipped: list[tuple[str, str]] = []
    evidence: list[Evidence] = []
    named, total = _named(model, images)
    with bar("adapting" if test_time else "encoding", quiet=json) as progress:
        found = answers(
            model,
            (pair for pair in named if pair[0] not in already),
            asked,
            clf.reading,
            skipped=skipped,
            evidence=evidence,
            total=None if total is None else max(0, total - len(already)),
            progress=progress,
        )
        done = list(found) if file is None else file.write(found)
    report_skipped(skipped, json)
    for each in evidence:
        say(f"classified {'together' if each.used else 'one by one'}: {each.why}", quiet=json)
    if not isinstance(done, int):
        _show(done, json)
    elif json:
        told = {"out": str(out), "written": done, "already": len(already), "skipped": len(skipped)}
        print_json(told | ({"together": vars(evidence[0])} if evidence else {}))
    else:
        say(f"{done} answers written to {out}")


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
