"""`prolip classes`: what a model knows, and other names for its classes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from prolip.cli import options
from prolip.cli.console import OUTPUT, percent, print_json, say, table
from prolip.cli.parameters import command, option

if TYPE_CHECKING:
    from prolip import AdaptedModel


@command("classes")
@options.saved_model
@option("--rename", multiple=True, metavar="OLD=NEW", help="Another name for a class.")
@options.replaced_model
@options.fit_options("device")
def classes(
    saved: options.SavedModel, rename: tuple[str, ...], out: Path | None, settings: dict[str, Any]
) -> None:
    """List or rename the classes of a model.

    No images are needed. A new name changes no prediction: the prompts of the model keep the old one.

    $ prolip classes my-model
    $ prolip classes my-model --rename "tabby=tabby cat"
    """
    from prolip.core import UsageError

    if out is not None and not rename:
        raise UsageError("nothing is changed: --out goes with --rename")
    target = saved.target(out) if rename else None
    clf = saved.load(settings)
    if target is not None:
        saved.save(clf.rename(dict(map(_parse_pair, rename))), target)
    _show(clf.model_, target)
    if rename:
        say("The prompts keep the old names, and no prediction changes.")


def _parse_pair(pair: str) -> tuple[str, str]:
    from prolip.core import UsageError

    old, _, new = (part.strip() for part in pair.rpartition("="))
    if not old or not new:
        raise UsageError(f"--rename takes OLD=NEW, got {pair!r}")
    return old, new


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
