"""`prolip predict`: one image, or a million."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prolip.cli import common
from prolip.cli.console import bar, percent, print_json, say, table

if TYPE_CHECKING:
    from prolip.api import AdaptedModel
    from prolip.api.answer import Asked
    from prolip.api.sorting import Sorting
    from prolip.evaluate.unlabelled import Evidence


MAX_TOP = 100_000  # classes; a model with fewer shows all that it has


def predict(
    saved: common.Saved,
    images: Annotated[
        list[str],
        typer.Argument(
            metavar="IMAGE_OR_DIR",
            help="Images, or folders, tables, archives or datasets of them; - reads paths from the input.",
        ),
    ],
    top: Annotated[int, typer.Option(min=1, max=MAX_TOP, help="Classes to show for each image.")] = 1,
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
        str | None, typer.Option(help="Adapt to each image first, on 64 views of it: prolip, or tpt (slow).")
    ] = None,
    together: Annotated[
        bool,
        typer.Option(
            "--together", help="Classify all images together, where held-out labelled ones are helped by it."
        ),
    ] = False,
    groups: common.Groups = None,
    sort_into: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Copy each image into a folder for its answer; with --reject, into none-of-these too.",
        ),
    ] = None,
    link: Annotated[bool, typer.Option("--link", help="With --sort-into: link, do not copy.")] = False,
    move: Annotated[bool, typer.Option("--move", help="With --sort-into: move, do not copy.")] = False,
    unsure: Annotated[
        float | None,
        typer.Option(metavar="P", help="With --sort-into: below this probability, into the folder unsure."),
    ] = None,
    base: common.Base = None,
    trust_base: common.TrustBase = False,
    device: common.Device = "auto",
    store: common.Store = None,
    no_store: common.NoStore = False,
    skip_bad: common.SkipBad = False,
    exact_decode: common.ExactDecode = False,
    absolute_paths: common.AbsolutePaths = False,
    json: common.Json = False,
) -> None:
    """Tell the class of images.

    prolip predict my-model new/*.jpg --top 3

    find /archive -name '*.jpg' | prolip predict my-model - --out answers.csv

    prolip predict my-model unsorted/ --sort-into sorted --unsure 0.6
    """
    from prolip.api.answer import Asked, answers, run_name
    from prolip.api.answer_file import AnswerFile, check_answers
    from prolip.api.groups import read_groups
    from prolip.core import UsageError
    from prolip.evaluate.reject import FALSE_REJECT

    if not reject and not (false_reject is None and false_accept is None):
        raise UsageError("--false-reject and --false-accept say how to --reject: add that option")
    common.check_fraction("--false-reject", false_reject)
    common.check_fraction("--false-accept", false_accept)
    _check_way(test_time)
    if out is not None:
        check_answers(out)
    clf = common.load(saved, device, False if no_store else store, skip_bad, base, trust_base, exact_decode)
    model = clf.model_
    asked = Asked(
        top, reject, FALSE_REJECT if false_reject is None else false_reject, false_accept, test_time,
        None if groups is None else read_groups(groups, model.classes), together,
    )  # fmt: skip
    sorting = _sorting(model, asked, images, sort_into, link, move, unsure)
    named, total = _named(model, images, absolute_paths)
    skipped: list[tuple[str, str]] = []
    evidence: list[Evidence] = []

    def find(named: Iterable[tuple[str, Any]], total: int | None, progress: Any) -> Iterator[dict[str, Any]]:
        if sorting is not None:
            named = sorting.remember(named)
        lists: dict[str, Any] = {"skipped": skipped, "evidence": evidence}
        found = answers(model, named, asked, clf.reading, **lists, total=total, progress=progress)
        return found if sorting is None else sorting.place_all(found)

    progress_bar = bar("adapting" if test_time else "encoding", quiet=json)
    if out is None:
        with progress_bar as progress:
            shown = list(find(named, total, progress))
        _report(skipped, evidence, json)
        if sorting is not None:
            _show_sorted(sorting, len(skipped), json)
        else:
            _show(shown, json)
        return
    ranks = min(top, len(model.classes))
    with AnswerFile(out, ranks, reject, run_name(model, asked)).opened() as file, progress_bar as progress:
        already = len(file.done)
        if already and together:
            raise UsageError(f"{out} has answers, and --together answers all at once: name a new file")
        if already:
            say(f"{already} answers are in {out} already", quiet=json)
        left = None if total is None else max(0, total - already)
        # What has an answer may not have been sorted yet.
        written = file.write(find(_unanswered(named, set() if sorting else file.done), left, progress))
    _report(skipped, evidence, json)
    if sorting is not None:
        _show_sorted(sorting, len(skipped), json)
    elif json:
        told = {"out": str(out), "written": written, "already": already, "skipped": len(skipped)}
        print_json(told | ({"together": vars(evidence[0])} if evidence else {}))
    else:
        say(f"{written} answers written to {out}")


def _report(skipped: list[tuple[str, str]], evidence: list[Evidence], json: bool) -> None:
    """What could not be read, and whether images were classified together."""
    common.report_skipped(skipped, json)
    for each in evidence:
        say(f"classified {'together' if each.used else 'one by one'}: {each.why}", quiet=json)


def _unanswered(named: Iterable[tuple[str, Any]], done: set[str]) -> Iterator[tuple[str, Any]]:
    """Those that have no answer yet, each once however often it is named."""
    seen = set(done)
    for name, image in named:
        if name not in seen:
            seen.add(name)
            yield name, image


def _sorting(
    model: AdaptedModel,
    asked: Asked,
    sources: list[str],
    root: Path | None,
    link: bool,
    move: bool,
    unsure: float | None,
) -> Sorting | None:
    """Where images go by their answers, if anywhere."""
    from prolip.api.sorting import Sorting
    from prolip.core import UsageError
    from prolip.data.files import existing

    if root is None:
        if link or move or unsure is not None:
            raise UsageError("--link, --move and --unsure say how to --sort-into: add that option")
        return None
    if link and move:
        raise UsageError("--link and --move exclude each other")
    if not model.encoder.takes_pictures:
        raise UsageError("--sort-into sorts image files: embeddings have none")
    named = [existing(source).resolve() for source in sources if source != "-"]
    if named and all(root.resolve() in (path, *path.parents) for path in named):
        raise UsageError(
            f"nothing to sort: {sources[0]} lies in {root}, the folder to sort into, where images count as "
            "sorted; name another --sort-into"
        )
    classes = model.classes if asked.groups is None else asked.groups.names
    return Sorting(root, classes, "link" if link else "move" if move else "copy", unsure or 0.0)


def _show_sorted(sorting: Sorting, skipped: int, json: bool) -> None:
    if json:
        print_json({"into": str(sorting.root), "sorted": dict(sorting.counts), "skipped": skipped})
        return
    table(None, ["folder", "images"], [[name, str(n)] for name, n in sorted(sorting.counts.items())])
    say(f"sorted into {sorting.root}")


def _check_way(way: str | None) -> None:
    if way is not None:
        from prolip.methods import test_time

        test_time.create(way)


def _named(
    model: AdaptedModel, sources: list[str], absolute_paths: bool
) -> tuple[Iterable[tuple[str, Any]], int | None]:
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
        return ((readable(line), line) for line in _lines()), None
    listed = list_images(sources, absolute_paths=absolute_paths)
    return ((readable(str(image)), image) for image in listed), len(listed)


def _lines() -> Iterator[str]:
    """Names of files from standard input, one a line; bytes in them that are no UTF-8 stay what they are."""
    from prolip.core import InputError

    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    line = None
    for line in filter(None, (raw.rstrip("\r\n") for raw in sys.stdin)):
        if "\0" in line:  # in no name, but in every image
            raise InputError("- reads names of files, one a line, and other bytes came: name the file")
        yield line
    if line is None:
        raise InputError("no images were named: - reads names of files, one a line, and none came")


def _show(answers: list[dict[str, Any]], json: bool) -> None:
    if json:
        print_json(answers)
        return
    rows = []
    for answer in answers:
        ranked = ", ".join(f"{r['class']} {percent(r['probability'])}" for r in answer["top"])
        rows.append([str(answer["image"]), f"none of these ({ranked})" if answer.get("rejected") else ranked])
    table(None, ["image", "class, probability in %"], rows, right=9)
