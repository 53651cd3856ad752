"""Options that several commands share.

The options of a fit are those that `api.recipe` declares: `fit_options` adds some of them to a command, which
gets them as one dictionary, the arguments of `FewShotClassifier`. Other groups of options are frozen
dataclasses whose fields are options; a decorator, like `@tables`, adds them, and the command gets one value.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prolip.api.recipe import IMAGES, OPTIONS
from prolip.cli.console import OUTPUT, detail, printable
from prolip.cli.parameters import PATH, TEXT, DeviceName, argument, flag, option

if TYPE_CHECKING:
    from prolip import FewShotClassifier

LABELLED = (
    "a folder per class, a table (.csv .tsv .jsonl .parquet), an archive (.zip .tar .tar.gz) or a dataset"
)
TRAINING = f"Labelled images: {LABELLED}; its train split, if there is one."
SKIP_LABELLED, SKIP_ALL = 0.1, 1.0  # the fraction of images that may be unreadable
MAX_OPTION = 1e12  # for a number among a method's options: float32 overflows in what follows beyond it


def shared(declare: Callable[[Any], Any], default: Any = None) -> Any:
    """Declare a field of a group: the option, and its value where a command does not have it."""
    return field(default=default, metadata={"declare": declare})


def group(name: str, kind: type, without: tuple[str, ...] = ()) -> Callable[[Any], Any]:
    """Return a decorator that adds the options of a dataclass to a command, as one parameter `name`."""
    own = [each for each in fields(kind) if each.name not in without]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def collected(**values: Any) -> None:
            chosen = kind(**{each.name: values.pop(each.name) for each in own})
            function(**values, **{name: chosen})

        for each in reversed(own):
            each.metadata["declare"](collected)
        return collected

    return decorate


# The options of a fit


def fit_options(*names: str, tolerance: float = SKIP_LABELLED) -> Callable[[Any], Any]:
    """Add declared options to a command, which gets the arguments of a classifier as `settings`.

    `tolerance` is the fraction of images that may be unreadable, where there is no --strict.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def collected(**values: Any) -> None:
            settings = {name: values.pop(name) for name in names if name in values}
            strict = values.get("no_skip_bad")
            settings |= {name: False for name in names if values.pop(f"no_{name}", False)}
            if "skip_bad" in names and settings["skip_bad"] is False and not strict:
                settings["skip_bad"] = tolerance
            if "templates" in names:
                given = settings["templates"]
                settings["templates"] = given[0] if len(given) == 1 else given or None
            if "options" in names:
                settings["options"] = _parse_options(settings["options"]) or None
            function(**values, settings=settings)

        for name in reversed(names):
            for declare in reversed(list(_declarations(name))):
                declare(collected)
        return collected

    return decorate


def _declarations(name: str) -> Any:
    """Yield the declarations of an option on the command line: a value or a flag, and what turns it off."""
    declared, default = OPTIONS[name].metadata["option"], OPTIONS[name].default
    flags = (f"--{name}",) if declared.flags is None else declared.flags
    if default is True:
        flags = ()
    if flags and default is False:
        yield flag(*flags, name, help=declared.help, group=declared.group)
    elif flags:
        attributes: dict[str, Any] = {"type": _type(name, declared), "group": declared.group}
        attributes["multiple"] = name in ("templates", "options")
        attributes["default"] = None if attributes["multiple"] else default
        if declared.shown is not None:
            attributes["show_default"] = declared.shown
        yield option(*flags, name, metavar=declared.metavar, help=declared.help, **attributes)
    if declared.off is not None:
        yield flag(declared.off[0], f"no_{name}", help=declared.off[1], group=declared.group)


def _type(name: str, declared: Any) -> Any:
    if declared.least is not None:
        return click.IntRange(declared.least, declared.most)
    return PATH if declared.path else DeviceName() if name == "device" else TEXT


def _parse_options(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Parse NAME=VALUE pairs: numbers, true, false and none are what they look like, the rest is text."""
    from prolip.core import UsageError

    parsed: dict[str, Any] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if not name or not value:
            raise UsageError(f"--option takes NAME=VALUE, got {pair[:80]!r}")
        words = {"true": True, "false": False, "none": None}
        try:
            parsed[name] = words[value.lower()] if value.lower() in words else json.loads(value)
        except (ValueError, RecursionError):
            parsed[name] = value
        if isinstance(parsed[name], (int, float)) and not abs(parsed[name]) <= MAX_OPTION:
            raise UsageError(f"--option {name} must be a number of at most {MAX_OPTION:g}, got {value[:40]}")
    return parsed


def progress() -> bool:
    """Whether the classifier of a command draws progress."""
    return not OUTPUT.get().silent


def new_classifier(settings: dict[str, Any]) -> FewShotClassifier:
    """Return a classifier with these options, not yet fitted; ask before a model is downloaded."""
    from prolip import FewShotClassifier
    from prolip.cli.models import ensure_downloaded

    ensure_downloaded(settings["model"], settings["download"])
    return FewShotClassifier(**settings, progress=progress())


ENCODING = ("skip_bad", "device", "store")
device = option("--device", type=DeviceName(), default="auto", help=OPTIONS["device"].metadata["option"].help)
features_store = option(
    "--store", type=PATH, show_default="the user's cache", help=OPTIONS["store"].metadata["option"].help
)
base = option(
    "--base", metavar="NAME", show_default="as MODEL names it",
    help="The base model of MODEL; it may be downloaded.",
)  # fmt: skip
labelled_encoding = fit_options(*ENCODING)
unlabelled_encoding = fit_options(*ENCODING, tolerance=SKIP_ALL)
replaced_model = option("--out", "-o", type=PATH, show_default="MODEL", help="Folder to save the model in.")


# Tables


@dataclass(frozen=True)
class Tables:
    """How images and labels are found in tables and folders."""

    image_column: str | None = shared(
        option(
            "--image-column", show_default="recognised", help="The column of images in a table.", group=IMAGES
        )
    )
    label_column: str | None = shared(
        option(
            "--label-column", show_default="recognised", help="The column of labels in a table.", group=IMAGES
        )
    )
    images_dir: Path | None = shared(
        option(
            "--images-dir", type=PATH, show_default="its own", help="The folder of a table's files.",
            group=IMAGES,
        )
    )  # fmt: skip
    group_by: str | None = shared(
        option(
            "--group-by", metavar="parent|COLUMN", show_default="a column group",
            help="What images that are alike share: they stay in one fold.", group=IMAGES,
        )
    )  # fmt: skip

    def labelled(self, source: str, split: str) -> Any:
        """Return labelled images as the classifier takes them; also those of a project of the page."""
        from prolip.app.project import is_project, labelled_images
        from prolip.data import read_images

        if is_project(source):
            return labelled_images(Path(source), test=split == "test")
        given = vars(self)
        return read_images(source, split, min_classes=1, **given) if any(given.values()) else source

    def listed(self, sources: str | list[str]) -> list[Any]:
        """List images without labels."""
        from prolip.data import list_images

        return list_images(sources, image_column=self.image_column, images_dir=self.images_dir)


tables = group("tables", Tables)
unlabelled_tables = group("tables", Tables, without=("label_column", "group_by"))


# Saved models


@dataclass(frozen=True)
class SavedModel:
    """A saved model, and what is known about its base model."""

    path: Path = shared(argument("path", "MODEL", "A saved model.", type=PATH))
    base: str | None = shared(base)

    def load(self, settings: dict[str, Any]) -> FewShotClassifier:
        """Return the model as a classifier."""
        from prolip import FewShotClassifier

        clf = FewShotClassifier.load(self.path, base=self.base, **settings, progress=progress())
        detail(f"{self.path}: {clf.method} on {clf.model_.encoder.name}, {len(clf.classes_)} classes")
        return clf

    def target(self, out: Path | None) -> Path:
        """Return where a changed model is saved: in place of this one, or in another folder."""
        from prolip.export.saved import check_target, has_card

        target = self.path if out is None or out.resolve() == self.path.resolve() else out
        check_target(target, has_card(self.path))
        if target is not self.path:
            confirm_replacing(target)
        return target

    def save(self, clf: FewShotClassifier, target: Path) -> None:
        """Save the changed model as this one is: with its card and its features, if it has them."""
        from prolip.export.saved import has_card

        support = clf.model_.support.task is not None
        clf.save(target, support=support, card=has_card(self.path), force=target is not self.path)


saved_model = group("saved", SavedModel)


def confirm_replacing(out: Path, advice: str = "name another folder") -> None:
    """Ask before the model in a folder is replaced; without a terminal, refuse."""
    from prolip.core import UsageError
    from prolip.export.saved import CONFIG

    if not (out / CONFIG).is_file():
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{out} has a model: {advice}")
    if not click.confirm(printable(f"{out} has a model: replace it?"), err=True):
        raise UsageError(f"{out} stays as it is: name another folder")
