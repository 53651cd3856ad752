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
    from prolip.api.batch import AnswerFile


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
    from prolip.api.batch import AnswerFile, answers, run_name
    from prolip.core import UsageError
    from prolip.core.files import readable
    from prolip.evaluate.reject import FALSE_REJECT

    if not reject and not (false_reject is None and false_accept is None):
        raise UsageError("--false-reject and --false-accept say how to --reject: add that option")
    false_reject = FALSE_REJECT if false_reject is None else false_reject
    clf = load(saved, device, False if no_store else store, skip_bad)
    file = None
    if out is not None:
        limits = {"false_reject": false_reject, "false_accept": false_accept} if reject else {}
        file = AnswerFile(out, top, reject, run_name(clf, top=top, test_time=test_time, **limits))
    already = set() if file is None else file.done
    if already:
        say(f"{len(already)} answers are in {out} already", quiet=json)
    skipped: list[tuple[str, str]] = []
    if clf.model == "arrays":
        listed = [
            answer
            for source in images
            for answer in _answers_of_arrays(clf, source, top, reject, false_reject, false_accept)
        ]
        done = _keep([answer for answer in listed if answer["image"] not in already], file)
    else:
        paths, total = _paths(images)
        with bar("adapting" if test_time else "encoding", quiet=json) as progress:
            found = answers(
                clf,
                (path for path in paths if readable(path) not in already),
                top=top,
                reject=reject,
                false_reject=false_reject,
                false_accept=false_accept,
                test_time=test_time,
                skipped=skipped,
                total=None if total is None else max(0, total - len(already)),
                progress=progress,
            )
            done = _keep(found, file)
    report_skipped(skipped, json)
    if not isinstance(done, int):
        _show(done, json)
    elif json:
        print_json({"out": str(out), "written": done, "already": len(already), "skipped": len(skipped)})
    else:
        say(f"{done} answers written to {out}")


def _keep(found: Iterable[dict[str, Any]], file: AnswerFile | None) -> list[dict[str, Any]] | int:
    """Write answers as they are found, and count them; without a file, collect them."""
    return list(found) if file is None else file.write(found)


def _paths(images: list[str]) -> tuple[Iterable[str], int | None]:
    """The images to answer for, and how many; a list on standard input is read as it comes."""
    if images == ["-"]:
        return (line for raw in sys.stdin if (line := raw.rstrip("\r\n"))), None
    from prolip.data import list_images

    listed = [str(path) for path in list_images(images)]
    return listed, len(listed)


def _answers_of_arrays(
    clf: Any, source: str, top: int, reject: bool, false_reject: float, false_accept: float | None
) -> list[dict[str, Any]]:
    from prolip.api.batch import one_answer
    from prolip.core.arrays import softmax
    from prolip.core.files import readable
    from prolip.encoders.arrays import read_arrays

    x = read_arrays(source).x
    probabilities = softmax(clf.calibrated(x))
    refused: list[bool | None] = [None] * len(x)
    if reject:
        answers = probabilities.argmax(axis=1)
        refused = clf.outsiders(x, answers, false_reject, false_accept).tolist()
    return [
        one_answer(clf.classes_, f"{readable(source)}:{i}", row, top, no)
        for i, (row, no) in enumerate(zip(probabilities, refused, strict=True))
    ]


def _show(answers: list[dict[str, Any]], json: bool) -> None:
    if json:
        print_json(answers)
        return
    rows = []
    for answer in answers:
        ranked = ", ".join(f"{r['class']} {percent(r['probability'])}" for r in answer["top"])
        rows.append([str(answer["image"]), f"none of these ({ranked})" if answer.get("rejected") else ranked])
    table(None, ["image", "class, probability in %"], rows, right=9)
