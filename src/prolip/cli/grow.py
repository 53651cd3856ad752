"""`prolip add`, `curve` and `suggest`: a model that grows."""

from pathlib import Path
from typing import Annotated

import typer

from prolip.cli import common
from prolip.cli.console import bar, console, escape, percent, print_json, say, table


def add(
    saved: common.Saved,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="DIR", help=f"Labelled images, of new classes or known ones: {common.IMAGES}."
        ),
    ] = None,
    name_only: Annotated[
        list[str] | None,
        typer.Option("--name-only", help="Add a class by its name, without an image; may be repeated."),
    ] = None,
    out: common.Replacing = None,
    absolute_paths: common.AbsolutePaths = False,
    base: common.Base = None,
    trust_base: common.TrustBase = False,
    device: common.Device = "auto",
    store: common.Store = None,
    no_store: common.NoStore = False,
    skip_bad: common.SkipBad = False,
    exact_decode: common.ExactDecode = False,
    json: common.Json = False,
) -> None:
    """Add classes or images to a saved model; the images that it was fitted on are not needed.

    prolip add my-model more-photos/

    prolip add my-model --name-only "red panda"
    """
    from prolip.api import keep
    from prolip.export.saved import check_target, has_card, version

    target, card = out or saved, has_card(saved)
    check_target(target, card)
    before = version(target)
    clf = common.load(saved, device, False if no_store else store, skip_bad, base, trust_base, exact_decode)
    images = None if source is None else common.labelled(source, "train", absolute_paths)
    with bar("encoding", quiet=json) as progress:
        report = clf.add(images, names=name_only or (), progress=progress)
    keep.save(clf.model_, target, card=card, over=before)
    common.report_skipped(clf.skipped_, json)
    if json:
        print_json({**report, "out": str(target)})
        return
    rows = [
        ["new classes", ", ".join(map(str, report["added_classes"])) or "none"],
        ["new images", f"{report['added_images']} ({report['duplicates']} were in the model already)"],
        [
            "old classes",
            f"{percent(report['old_accuracy_before'])} % before, {percent(report['old_accuracy'])} % now",
        ],
        ["saved", str(target)],
    ]
    table(None, ["", ""], rows, right=9)
    say("(accuracy on held-out support images of the old classes, by cross-validation)")


def curve(
    saved: common.Saved,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Draw the curve: a .png, .pdf or .svg.")
    ] = None,
    base: common.Base = None,
    trust_base: common.TrustBase = False,
    device: common.Device = "auto",
    json: common.Json = False,
) -> None:
    """Have I labelled enough? Accuracy against images per class, and what more of them would bring.

    prolip curve my-model -o curve.png
    """
    from prolip.core.writing import write_bytes
    from prolip.evaluate.curve_plot import draw_curve, plot_format

    style = "" if out is None else plot_format(out)
    clf = common.load(saved, device, False, False, base, trust_base)
    with bar("fitting", "fits", quiet=json) as progress:
        found = clf.learning_curve(progress=progress)
    if out is not None:
        write_bytes(out, draw_curve(found, style))
    if json:
        print_json({**found.report(), "out": None if out is None else str(out)})
        return
    rows = [[str(p.shots), percent(p.accuracy), "", ""] for p in found.points]
    for each in (found.now, *found.forecasts):
        span = f"{percent(each.low)} to {percent(each.high)}"
        gain = "" if each is found.now else f"{100 * (each.accuracy - found.now.accuracy):+.1f}"
        rows.append([f"{each.shots}{'' if gain else ' (now)'}", percent(each.accuracy), span, gain])
    table(None, ["images per class", "accuracy %", "90 % interval", "gain"], rows)
    if out is not None:
        console().print(f"\nDrawn to [bold]{escape(str(out))}[/]")


def suggest(
    saved: common.Saved,
    source: Annotated[
        str, typer.Argument(metavar="DIR", help="Images without labels: a folder, a table or an archive.")
    ],
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many to suggest.")] = 10,
    absolute_paths: common.AbsolutePaths = False,
    base: common.Base = None,
    trust_base: common.TrustBase = False,
    device: common.Device = "auto",
    store: common.Store = None,
    no_store: common.NoStore = False,
    skip_bad: common.SkipBad = False,
    exact_decode: common.ExactDecode = False,
    json: common.Json = False,
) -> None:
    """Which images to label next: those that stand for most of what nothing labelled resembles.

    prolip suggest my-model unsorted/ -n 20
    """
    from prolip.data import list_images

    clf = common.load(saved, device, False if no_store else store, skip_bad, base, trust_base, exact_decode)
    paths = list_images(source, absolute_paths=absolute_paths)
    with bar("encoding", quiet=json) as progress:
        found = clf.suggest(paths, count, progress=progress)
    if json:
        print_json([{"image": str(paths[s.index]), "gain": s.gain, "unsure": s.unsure} for s in found])
        return
    rows = [[str(paths[s.index]), percent(s.gain), percent(s.unsure)] for s in found]
    table(None, ["image", "covers %", "unsure %"], rows)
