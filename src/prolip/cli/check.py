"""`prolip check`: find problems in a folder of images."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prolip.cli import options
from prolip.cli.console import (
    OUTPUT,
    bar,
    console,
    escape,
    percent,
    print_json,
    program,
    say,
    table,
    warn,
)
from prolip.cli.parameters import CSV, HTML, PATH, SEED, argument, command, flag, option
from prolip.io.progress import counted

if TYPE_CHECKING:
    from prolip.api.check import Check

SHOWN = 10
ONLY = "unreadable, wrong-label, two-classes, train-and-test, copy or no-class"


@command("check")
@argument(
    "source", "[DIR]", "A folder per class; or a folder with train/ and test/.", type=PATH, required=False
)
@argument(
    "chosen", "[IMAGE]...", "With --move: move these images of DIR, and check nothing.", type=PATH, nargs=-1
)
@options.base_model
@option("--saved", type=PATH, help="Use this saved model instead of fitting one on DIR.")
@option("--report", type=HTML, help="Write a page with the images, an .html file.")
@option("--out", "-o", type=CSV, help="Write the findings to a .csv file.")
@option(
    "--move", type=PATH, metavar="FOLDER", help="Move what was found into this folder; --undo moves it back."
)
@option("--only", multiple=True, metavar="KIND", help=f"Only {ONLY}.")
@option("--undo", type=PATH, metavar="FOLDER", help="Move back what an earlier --move put into this folder.")
@flag("--yes", help="With --undo: move the files without asking.")
@option("--seed", type=SEED, default=0, help="Random seed for the folds.")
@options.group("images", options.ImageInput, without=("strict",))
def check(
    source: Path | None,
    chosen: tuple[Path, ...],
    model: str,
    saved: Path | None,
    report: Path | None,
    out: Path | None,
    move: Path | None,
    only: tuple[str, ...],
    undo: Path | None,
    yes: bool,
    seed: int,
    images: options.ImageInput,
) -> None:
    """Find wrong labels, duplicates, images of no class.

    Unreadable images are listed too. Files are moved only with --move, and nothing is ever deleted. The page
    of --report shows the images, and has the command that moves those you choose.

    $ prolip check photos/ --report check.html
    $ prolip check photos/ --move quarantine/ --only wrong-label
    $ prolip check photos/ --move quarantine/ cat/1.jpg dog/7.jpg
    $ prolip check --undo quarantine/
    """
    from prolip.api.check import KINDS
    from prolip.core import UsageError
    from prolip.core.errors import check_name
    from prolip.io.writing import write_text

    if undo is not None:
        if move is not None:
            raise UsageError("--undo and --move exclude each other")
        _undo(undo, source, yes)
        return
    if source is None:
        raise UsageError("name the folder to check: prolip check DIR")
    if chosen:
        if move is None or report or out or only or saved:
            raise UsageError("with IMAGE... images are moved, and nothing is checked: give --move alone")
        _show_moved(_move(_chosen(chosen, source), source, move), move)
        return
    for kind in only:
        check_name("kind", kind, KINDS)
    found = _look(source, model, saved, seed, images)
    found = replace(found, findings=[one for one in found.findings if not only or one.kind in only])
    if out is not None:
        found.write_csv(out)
    if report is not None:
        from prolip.report import check_page

        title = f"Check of {source.resolve().name}"
        root = source.expanduser()
        page = check_page(found, title=title, source=str(source), root=root, program=program())
        write_text(report, page)
    moved = 0 if move is None else _move(_found(found, source), source, move)
    if OUTPUT.get().json:
        print_json(_as_json(found, {"report": report, "out": out, "quarantine": move}, moved))
        return
    _show(found)
    for what, path in (("List", out), ("Page", report)):
        if path is not None:
            console().print(f"{what}: [bold]{escape(str(path))}[/]")
    if move is not None:
        _show_moved(moved, move)


def _look(source: Path, name: str, saved: Path | None, seed: int, images: options.ImageInput) -> Check:
    """Check the training images of a folder, and test images if it has both."""
    from prolip.api import FewShotClassifier
    from prolip.data import read_images
    from prolip.data.folders import MissingSplit

    if saved is not None:
        clf = FewShotClassifier.load(saved, **images.settings())
    else:
        clf = FewShotClassifier(name, seed=seed, **images.settings())
    tables, test = images.tables(labelled=True), None
    if images.labels is not None:
        train = images.labelled(str(source), "train")
    else:
        train = read_images(source, split="train", min_classes=2 if saved is None else 1, **tables)
    if train.split == "train":
        with suppress(MissingSplit):
            test = read_images(source, split="test", min_classes=1, **tables)
    if test is not None and test.images == train.images:
        test = None
    with bar("encoding") as progress:
        return clf.check(train, test=test, progress=progress)


def _found(found: Check, source: Path) -> list[tuple[Path, str]]:
    """Return the images that have a problem, and the kinds of it."""
    from prolip.core import UsageError

    why: dict[int, list[str]] = {}
    for one in found.findings:
        why.setdefault(one.image, []).append(one.kind)
    for i in why:
        if found.movable(i, source.expanduser()) is None:
            raise UsageError(
                f"{found.names[i]} is not in a folder called {found.labels[i]!r}: only images in a folder "
                "per class can be moved; use the list that --out writes to correct the table"
            )
    return [(found.images[i], ", ".join(kinds)) for i, kinds in why.items()]


def _chosen(images: tuple[Path, ...], source: Path) -> list[tuple[Path, str]]:
    """Return the images that the user names, by their paths below the folder or from here."""
    from prolip.core import InputError

    paths = []
    for image in images:
        places = (source.expanduser() / image, image.expanduser())
        path = next((each for each in places if os.path.lexists(each)), None)
        if path is None:
            raise InputError(f"{image} is not in {source}: nothing was moved")
        paths.append((path, "chosen"))
    return paths


def _move(images: list[tuple[Path, str]], source: Path, folder: Path) -> int:
    from prolip.api.quarantine import quarantine

    moved, left = quarantine(folder, images, source) if images else ([], [])
    for path, reason in left:
        warn(f"{path} stays: {reason}")
    return len(moved)


def _show_moved(moved: int, folder: Path) -> None:
    if OUTPUT.get().json:
        print_json({"moved": moved, "quarantine": str(folder)})
        return
    if not moved:
        console().print("Nothing was moved.")
        return
    back = f"{program()} check --undo {shlex.quote(str(folder))}"
    console().print(f"{counted(moved)} moved to {escape(str(folder))}. Back: [bold]{escape(back)}[/]")


def _undo(folder: Path, root: Path | None, yes: bool) -> None:
    from prolip.api.quarantine import read_quarantine, restore
    from prolip.core import UsageError

    found = read_quarantine(folder, root)
    if not yes:
        if OUTPUT.get().json or not sys.stdin.isatty():
            raise UsageError(
                f"{counted(len(found.files))} would be moved to {found.root}: add --yes to move them"
            )
        for one in found.files:
            console().print(escape(f"{folder / one.place} -> {found.root / one.source}"), soft_wrap=True)
        if not click.confirm(f"Move {counted(len(found.files))} back to {found.root}?"):
            raise click.exceptions.Exit(1)
    back, left = restore(found)
    if OUTPUT.get().json:
        paths = [{"path": str(found.root / one.source), "why": why} for one, why in left]
        print_json({"back": len(back), "left": paths})
    else:
        say(f"{counted(len(back))} moved back")
    for one, why in left:
        warn(f"{one.place} stays in {folder}: {why}")
    if left:
        raise click.exceptions.Exit(1)


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
    table(None, ["problem", "images"], [[kind, str(len(found.of_kind(kind)))] for kind in KINDS])
    for kind in KINDS:
        own = [row for row in rows if row["kind"] == kind]
        if not own:
            continue
        console().print()
        header = [{"wrong-label": "probably", "unreadable": "why"}.get(kind, "same as")]
        cells = [[str(r["suggestion"] or r["other"])] for r in own]
        if kind == "no-class":
            header, cells = ["nearest class"], [[f"cosine {r['score']:.2f}"] for r in own]
        images = [[str(r["path"]), str(r["label"]), *cell] for r, cell in zip(own, cells, strict=True)]
        table(kind, ["image", "label", *header], images[:SHOWN], right=9)
        if len(own) > SHOWN:
            console().print(f"... and {len(own) - SHOWN} more")
    console().print()
    if found.small:
        names = ", ".join(f"{name} ({n})" for name, n in found.small[:SHOWN])
        console().print(escape(f"too small: {names}"))
    for a, b, share in found.alike[:SHOWN]:
        console().print(escape(f"often confused: {a} and {b}, {percent(share)} % of their images"))
