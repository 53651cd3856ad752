"""`prolip check`: what to mend in a folder of images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prolip.cli.common import AbsolutePaths, Device, Json, NoStore, Store
from prolip.cli.console import bar, console, counted, escape, percent, print_json, say, table, warn

if TYPE_CHECKING:
    from prolip.api.check import Check
    from prolip.api.reading import Labelled
    from prolip.encoders import Encoder

SHOWN = 10


def check(
    source: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="A folder per class; or one with train/ and test/.")
    ] = None,
    model: Annotated[str, typer.Option(help="The base model, as for `prolip fit`.")] = "offline",
    saved: Annotated[
        Path | None, typer.Option(help="A saved model to ask, in the place of a fit on DIR.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page with the pictures, an .html.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write what was found, a .csv.")] = None,
    move: Annotated[
        Path | None,
        typer.Option(metavar="ASIDE", help="Move what was found into this folder; --undo moves it back."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help="Only this: unreadable, wrong-label, two-classes, train-and-test, copy or no-class; "
            "may be repeated.",
        ),
    ] = None,
    undo: Annotated[
        Path | None, typer.Option(metavar="ASIDE", help="Move back what an earlier --move put there.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of folds.")] = 0,
    absolute_paths: AbsolutePaths = False,
    device: Device = "auto",
    store: Store = None,
    no_store: NoStore = False,
    json: Json = False,
) -> None:
    """Find what to mend: likely wrong labels, copies, pictures of no class, unreadable ones.

    Nothing is changed unless you say --move, and nothing is ever deleted.

    prolip check photos/ --report check.html

    prolip check photos/ --move aside/ --only wrong-label

    prolip check --undo aside/
    """
    from prolip.api.check import KINDS
    from prolip.core import UsageError
    from prolip.core.errors import check_name
    from prolip.core.writing import write_bytes

    if undo is not None:
        if source is not None or move is not None:
            raise UsageError("--undo takes nothing else: prolip check --undo ASIDE")
        _undo(undo, json)
        return
    if source is None:
        raise UsageError("name the folder to check: prolip check DIR")
    for kind in only or ():
        check_name("kind", kind, KINDS)
    kept = False if no_store else store
    found = _look(source, absolute_paths, model, saved, seed, device, kept, json)
    found = replace(found, findings=[one for one in found.findings if not only or one.kind in only])
    if out is not None:
        write_bytes(out, found.csv().encode("utf-8", "backslashreplace"))
    if report is not None:
        from prolip.report import check_page

        page = check_page(found, title=f"Check of {source.resolve().name}", source=str(source))
        write_bytes(report, page.encode("utf-8", "backslashreplace"))
    moved = 0 if move is None else _move(found, source, move)
    if json:
        print_json(_as_json(found, {"report": report, "out": out, "aside": move}, moved))
        return
    _show(found)
    if report is not None:
        console().print(f"\nPage: [bold]{escape(str(report))}[/]")
    if move is not None:
        aside = escape(str(move))
        console().print(f"\n{counted(moved)} moved to {aside}. Back: [bold]prolip check --undo {aside}[/]")


def _look(
    source: Path,
    anywhere: bool,
    name: str,
    saved: Path | None,
    seed: int,
    device: str,
    store: Any,
    quiet: bool,
) -> Check:
    from prolip import encoders
    from prolip.api import FewShotClassifier, Recipe
    from prolip.api.check import check_images

    fitted = None
    if saved is not None:
        clf = FewShotClassifier.load(saved, device=device, store=store)
        fitted = clf.model_
        encoder, classes = fitted.encoder, fitted.classes
    else:
        encoder, classes = encoders.load(name, device), None
        clf = FewShotClassifier(encoder, store=store)
    train, test = _parts(encoder, source, anywhere, classes)
    with bar("encoding", quiet=quiet) as progress:
        return check_images(
            encoder, Recipe(seed=seed), train, test, clf.reading, model=fitted, progress=progress
        )


def _parts(encoder: Encoder, source: Path, anywhere: bool, classes: Any) -> tuple[Labelled, Labelled | None]:
    """Training images, and test images where the folder has both."""
    from prolip.api.reading import read_labelled
    from prolip.data import read_images
    from prolip.data.folders import MissingSplit

    train = read_images(source, split="train", min_classes=1 if classes else 2, absolute_paths=anywhere)
    labelled = read_labelled(encoder, train, None, "train", classes)
    if train.split != "train":
        return labelled, None
    try:
        test = read_images(source, split="test", min_classes=1, absolute_paths=anywhere)
    except MissingSplit:
        return labelled, None
    if test.images == train.images:
        return labelled, None
    return labelled, read_labelled(encoder, test, None, "test", labelled.classes)


def _move(found: Check, source: Path, aside: Path) -> int:
    from prolip.api.aside import put_aside
    from prolip.core import UsageError

    why: dict[int, list[str]] = {}
    for one in found.findings:
        why.setdefault(one.image, []).append(one.kind)
    images, root = [], source.expanduser().parts
    for i, kinds in why.items():
        path, label = found.images[i], found.labels[i]
        if not isinstance(path, Path) or label not in path.parts[len(root) : -1]:
            raise UsageError(
                f"{found.names[i]} does not lie in a folder called {label!r}: only folders per class can be "
                "tidied by moving files; mend the table by the list that --out writes"
            )
        images.append((path, ", ".join(kinds)))
    moved, left = put_aside(aside, images, source) if images else ([], [])
    for path, reason in left:
        warn(f"{path} stays: {reason}")
    return len(moved)


def _undo(aside: Path, json: bool) -> None:
    from prolip.api.aside import put_back

    back, left = put_back(aside)
    if json:
        print_json({"back": len(back), "left": [{"path": one.source, "why": why} for one, why in left]})
    else:
        say(f"{counted(len(back))} moved back")
    for one, why in left:
        warn(f"{one.place} stays in {aside}: {why}")
    if left:
        raise typer.Exit(1)


def _as_json(found: Check, written: dict[str, Path | None], moved: int) -> dict[str, Any]:
    return {
        "images": len(found.images),
        "classes": found.classes,
        "counts": found.counts,
        "accuracy": found.accuracy,
        "findings": found.rows(),
        "small_classes": [name for name, _ in found.small],
        "alike": [{"classes": [a, b], "mixed": share} for a, b, share in found.alike],
        "moved": moved,
        **{name: str(path) for name, path in written.items() if path is not None},
    }


def _show(found: Check) -> None:
    from prolip.api.check import KINDS

    rows = found.rows()
    table(None, ["found", "images"], [[kind, str(len(found.of_kind(kind)))] for kind in KINDS])
    for kind in KINDS:
        own = [row for row in rows if row["kind"] == kind]
        if not own:
            continue
        console().print()
        told = [[str(r["path"]), str(r["label"]), str(r["suggestion"] or r["other"] or "")] for r in own]
        column = {"wrong-label": "probably", "unreadable": "why"}.get(kind, "same as")
        table(kind, ["image", "label", column], told[:SHOWN], right=9)
        if len(own) > SHOWN:
            console().print(f"... and {len(own) - SHOWN} more")
    console().print()
    if found.small:
        names = ", ".join(f"{name} ({n})" for name, n in found.small[:SHOWN])
        console().print(escape(f"too small: {names}"))
    for a, b, share in found.alike[:SHOWN]:
        console().print(escape(f"alike: {a} and {b}, {percent(share)} % of their images are mixed up"))
