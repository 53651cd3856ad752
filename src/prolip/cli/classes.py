"""`prolip classes`: what a model knows, and its classes renamed, merged or removed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prolip.cli.common import Base, Device, Json, Replacing, Saved, TrustBase
from prolip.cli.console import percent, print_json, say, table

if TYPE_CHECKING:
    from prolip.api import AdaptedModel


def classes(
    saved: Saved,
    rename: Annotated[
        list[str] | None, typer.Option(metavar="OLD=NEW", help="Another name for a class; may be repeated.")
    ] = None,
    merge: Annotated[
        list[str] | None, typer.Option(metavar="A,B=NEW", help="Several classes as one; may be repeated.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A class to drop; may be repeated.")
    ] = None,
    retext: Annotated[
        bool, typer.Option("--retext", help="With --rename: let the model read the new names, and fit again.")
    ] = False,
    out: Replacing = None,
    base: Base = None,
    trust_base: TrustBase = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """List the classes of a model, or change them: rename, merge, remove. No images are needed.

    A new name changes no answer: the model goes on reading the old one, unless you say --retext. Merging and
    removing fit again, from the features that the model keeps.

    prolip classes my-model --rename "tabby=tabby cat" --merge "beagle,basset hound=hound" --remove fox
    """
    from prolip.api import classes as change
    from prolip.api import keep
    from prolip.core import UsageError
    from prolip.export.saved import check_target, has_card, version

    if retext and not rename:
        raise UsageError("--retext says how to --rename: add that option")
    if out is not None and not (rename or merge or remove):
        raise UsageError("nothing is changed: --out goes with --rename, --merge or --remove")
    target, card = out or saved, has_card(saved)
    check_target(target, card)
    there = version(target)
    model = before = keep.load(saved, device, base=base, trust_base=trust_base)
    if remove:
        model = change.remove_classes(model, remove)
    for names, new in _pairs(merge, "--merge", "A,B=NEW"):
        model = change.merge_classes(model, [name.strip() for name in names.split(",")], new)
    if rename:
        model = change.rename_classes(model, dict(_pairs(rename, "--rename", "OLD=NEW")), retext=retext)
    if model is not before:
        support = before.support.task is not None
        keep.save(model, target, support=support, card=card, over=there)
    _show(model, None if model is before else target, json)
    if rename and not retext:
        say(
            "The texts stay those of the old names, and no answer changes: --retext reads the new ones.", json
        )


def _pairs(given: list[str] | None, option: str, form: str) -> list[tuple[str, str]]:
    from prolip.core import UsageError

    found = []
    for pair in given or ():
        old, equals, new = (part.strip() for part in pair.rpartition("="))
        if not equals or not old or not new:
            raise UsageError(f"{option} takes {form}, got {pair!r}")
        found.append((old, new))
    return found


def _show(model: AdaptedModel, saved: Path | None, json: bool) -> None:
    import numpy as np

    task, held_out = model.support.task, model.confidence.report
    unknown: list[Any] = [None] * len(model.classes)
    counts = unknown if task is None else np.bincount(task.y, minlength=task.classes).tolist()
    accuracy = held_out.get("per_class", unknown)
    if json:
        told = {"classes": list(model.classes), "counts": counts, "held_out": held_out}
        print_json(told if saved is None else {**told, "out": str(saved)})
        return
    rows = [
        [str(name), "-" if n is None else str(n), percent(a)]
        for name, n, a in zip(model.classes, counts, accuracy, strict=True)
    ]
    table(None, ["class", "images", "held-out accuracy %"], rows)
    if saved is not None:
        say(f"saved to {saved}")
