"""`prolip classes`: what a model knows, and its classes renamed, merged or removed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from prolip.cli import options
from prolip.cli.console import OUTPUT, percent, print_json, say, table
from prolip.cli.parameters import command, flag, option

if TYPE_CHECKING:
    from prolip.api import AdaptedModel


@command("classes")
@options.saved_model
@option("--rename", multiple=True, metavar="OLD=NEW", help="Another name for a class.")
@option("--merge", multiple=True, metavar="A,B=NEW", help="Make several classes one.")
@option("--remove", multiple=True, metavar="NAME", help="Remove a class.")
@flag("--retext", help="With --rename: use the new names in the prompts too, and fit again.")
@options.replaced_model
@options.device
def classes(
    saved: options.SavedModelInput,
    rename: tuple[str, ...],
    merge: tuple[str, ...],
    remove: tuple[str, ...],
    retext: bool,
    out: Path | None,
    device: str,
) -> None:
    """List, rename, merge or remove the classes of a model.

    No images are needed. A new name changes no prediction: the prompts of the model keep the old one, except
    with --retext. Merging and removing fit again, from the features in the model.

    $ prolip classes my-model --rename "tabby=tabby cat" --merge "beagle,basset hound=hound" --remove fox
    """
    from prolip.api import classes as change
    from prolip.api import save as saving
    from prolip.core import UsageError
    from prolip.export.saved import check_target, has_card, version

    if retext and not rename:
        raise UsageError("--retext is for --rename: add that option")
    if out is not None and not (rename or merge or remove):
        raise UsageError("nothing is changed: --out goes with --rename, --merge or --remove")
    target, card = saved.target(out), has_card(saved.path)
    check_target(target, card)
    there = version(target)
    model = before = saving.load(saved.path, device, base=saved.base, trust_base=saved.trust_base)
    if remove:
        model = change.remove_classes(model, list(remove))
    for names, new in _pairs(merge, "--merge", "A,B=NEW"):
        model = change.merge_classes(model, [name.strip() for name in names.split(",")], new)
    if rename:
        model = change.rename_classes(model, dict(_pairs(rename, "--rename", "OLD=NEW")), retext=retext)
    if model is not before:
        support = before.support.task is not None
        saving.save(model, target, support=support, card=card, over=there)
    _show(model, None if model is before else target)
    if rename and not retext:
        say("The prompts keep the old names, and no prediction changes: --retext uses the new names.")


def _pairs(given: tuple[str, ...], option: str, form: str) -> list[tuple[str, str]]:
    from prolip.core import UsageError

    found = []
    for pair in given:
        old, equals, new = (part.strip() for part in pair.rpartition("="))
        if not equals or not old or not new:
            raise UsageError(f"{option} takes {form}, got {pair!r}")
        found.append((old, new))
    return found


def _show(model: AdaptedModel, saved: Path | None) -> None:
    import numpy as np

    task = model.support.task
    unknown: list[Any] = [None] * len(model.classes)
    counts = unknown if task is None else np.bincount(task.y, minlength=task.classes).tolist()
    accuracy = model.confidence.figures.per_class or unknown
    if OUTPUT.get().json:
        out = {} if saved is None else {"out": str(saved)}
        held_out = model.confidence.report
        print_json({"classes": list(model.classes), "counts": counts, "held_out": held_out, **out})
        return
    rows = [
        [str(name), "-" if n is None else str(n), percent(a)]
        for name, n, a in zip(model.classes, counts, accuracy, strict=True)
    ]
    table(None, ["class", "images", "held-out accuracy %"], rows)
    if saved is not None:
        say(f"saved to {saved}")
