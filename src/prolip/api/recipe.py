"""The options of a fit. Each is described here, once, with its type, default, help and group.

The constructor of `FewShotClassifier`, its documentation and `get_params`, the options of the commands, the
reference and the saved model are made of these declarations.

    Recipe       what a fit depends on; a saved model keeps it, and uses it again when it grows
    Parameters   all of them as attributes that may change, and the encoder and how it runs here
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

# The command line reads the declarations for `--help`: heavy modules are imported where they are used.
if TYPE_CHECKING:
    from prolip import methods
    from prolip.core import Text
    from prolip.encoders import Encoder

COMMON, IMAGES, METHOD, OUTPUT, ADVANCED = GROUPS = (
    "Common", "Images and tables", "Method", "Output", "Advanced",
)  # fmt: skip


@dataclass(frozen=True)
class Option:
    """How an option is described, and what it is called on the command line."""

    help: str
    group: str
    flags: tuple[str, ...] | None = None  # other flags than --name; () for none
    off: tuple[str, str] | None = None  # a flag that gives False, and its help
    metavar: str | None = None
    shown: str | None = None  # the default, in words
    path: bool = False
    least: int | None = None
    most: int | None = None


def option(default: Any, help: str, group: str, **more: Any) -> Any:
    """Declare an option of a fit."""
    return field(default=default, metadata={"option": Option(help, group, **more)})


@dataclass(frozen=True)
class Recipe:
    """What a fit depends on, as the user gave it; it is used again when the model grows."""

    method: str = option("anchored", "The method: one that `prolip methods` lists, or module:Class.", METHOD)
    options: dict[str, Any] | None = option(
        None, "Options of the method, such as lam.", METHOD, flags=("--option", "-O"), metavar="NAME=VALUE"
    )
    shots: int | None = option(None, "Images of each class to use.", COMMON, shown="all", least=1)
    views: int = option(
        1, "Views of each image: the centre crop, and views - 1 augmented ones.", METHOD, least=1, most=10_000
    )
    seed: int = option(
        0, "Random seed for sampling, augmented views and folds.", METHOD, least=0, most=2**32 - 1
    )
    templates: str | tuple[str, ...] | None = option(
        None, "Prompt with {} for the class name, or several; or the name of a dataset, for its prompts.",
        METHOD, flags=("--template",), shown="several",
    )  # fmt: skip
    calibrate: bool = option(
        True, "Cross-validate on the training images, and calibrate probabilities.", METHOD,
        off=("--no-calibrate", "Do not cross-validate, and do not calibrate probabilities."),
    )  # fmt: skip
    prompt_names: dict[str, str] = field(default_factory=dict)  # of classes that prompts name differently

    def __post_init__(self) -> None:
        """Convert NumPy scalars to Python's, which can be saved, and check numbers."""
        from prolip.core import UsageError
        from prolip.core.arrays import to_python_scalar

        for each in fields(self):
            declared, value = each.metadata.get("option"), to_python_scalar(getattr(self, each.name))
            if declared is None or declared.least is None or value is each.default is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < declared.least:
                least = declared.least
                raise UsageError(f"{each.name} must be an integer of at least {least}, got {value!r}")
            object.__setattr__(self, each.name, value)
        if not isinstance(self.options, Mapping | None):
            raise UsageError(f"options must be a mapping of names to values, got {self.options!r:.80}")
        if self.options is not None:
            options = {name: to_python_scalar(value) for name, value in self.options.items()}
            object.__setattr__(self, "options", options)
        if self.templates is not None and not isinstance(self.templates, str):
            object.__setattr__(self, "templates", tuple(self.templates))
        _ = self.prompts

    @cached_property
    def prompts(self) -> tuple[str, ...]:
        """The prompts of the class names."""
        from prolip.data import as_templates

        return tuple(as_templates(self.templates))

    def names_in_prompts(self, classes: Sequence[Any]) -> list[str]:
        """Return what prompts call each class; refuse names that prompts cannot tell apart."""
        from prolip.core import UsageError
        from prolip.data.imageset import class_names

        names = list(map(str, classes))
        taken = {self.prompt_names[name]: name for name in names if name in self.prompt_names}
        if twice := next((name for name in names if name in taken and name not in self.prompt_names), None):
            raise UsageError(f"the prompts still call class {taken[twice]!r} {twice!r}: choose another name")
        return list(class_names(self.prompt_names.get(name, name) for name in names))

    def class_text(self, encoder: Encoder, classes: Sequence[Any]) -> Text:
        """Return the text rows of classes."""
        return encoder.text(self.names_in_prompts(classes), self.prompts)

    def create(self) -> methods.Method:
        """Return the method with its options, which are checked once."""
        return self._method

    @cached_property
    def _method(self) -> methods.Method:
        from prolip import methods
        from prolip.core import UsageError

        seeded = {"seed": self.seed} if "seed" in methods.options(self.method) else {}
        method = methods.create(self.method, **seeded | (self.options or {}))
        if method.trains_tower:
            raise UsageError(f"{self.method} trains the encoder itself: it is for `prolip bench run`")
        return method


@dataclass(eq=False, repr=False)
class Parameters:
    """The options of a fit as attributes, with scikit-learn's protocol and without scikit-learn."""

    model: str | Encoder = option(
        "offline",
        "The encoder: offline, clip (or another of `prolip models`), onnx:ID-or-PATH, open_clip:ARCH/TAG, "
        "open_clip:local-dir:PATH or hf:ID-or-PATH; in Python also a loaded encoder.",
        COMMON,
    )
    method: str = "anchored"
    _: KW_ONLY
    options: dict[str, Any] | None = None
    shots: int | None = None
    views: int = 1
    seed: int = 0
    templates: str | Sequence[str] | None = None
    calibrate: bool = True
    device: str = option("auto", "Where the encoder runs: auto, cpu, cuda, mps.", ADVANCED)
    store: str | Path | bool | None = option(
        None, "Folder for computed features.", ADVANCED, shown="the user's cache", path=True,
        off=("--no-store", "Do not write features to the disk."),
    )  # fmt: skip
    skip_bad: bool | float = option(
        False, "Skip images that cannot be read; in Python also a number, the largest fraction.", IMAGES,
        flags=("--skip",), off=("--strict", "Stop at the first image that cannot be read."),
    )  # fmt: skip
    download: bool = option(False, "Download the model, if it has a short name and is not here.", ADVANCED)
    progress: bool | Callable[[str, int, int], None] | None = option(
        None,
        "Whether to draw progress bars; None draws them in a terminal or a notebook, for what takes more "
        "than two seconds. A function is called with (what, done, total) instead.",
        OUTPUT, flags=(),
    )  # fmt: skip

    def __init_subclass__(cls) -> None:
        """Put the options into the documentation of the class, in place of `{parameters}`."""
        lines = ["Parameters", "----------"]
        for name, each in OPTIONS.items():
            lines += [name, textwrap.indent(textwrap.fill(each.metadata["option"].help, 100), "    ")]
        cls.__doc__ = inspect.cleandoc(cls.__doc__ or "").replace("{parameters}", "\n".join(lines))

    def recipe(self) -> Recipe:
        """Return what a fit depends on, checked."""
        recipe = Recipe(**{name: getattr(self, name) for name in RECIPE})
        recipe.create()
        return recipe

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the constructor."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Any:
        """Change parameters of the constructor, for the next fit."""
        from prolip.core.errors import check_name

        for name, value in params.items():
            check_name("parameter", name, self.get_params())
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            "classifier", TargetTags(required=False), classifier_tags=ClassifierTags(),
            input_tags=InputTags(two_d_array=False),
        )  # fmt: skip

    def changed_parameters(self) -> str:
        """Return the parameters that have other values than their defaults, as they are written."""
        defaults = inspect.signature(type(self)).parameters
        return ", ".join(
            f"{name}={(getattr(value, 'name', value) if name == 'model' else value)!r}"
            for name, value in self.get_params().items()
            if value is not defaults[name].default and value != defaults[name].default
        )


OPTIONS = {each.name: each for kind in (Parameters, Recipe) for each in fields(kind) if each.metadata}
RECIPE = tuple(each.name for each in fields(Recipe) if each.metadata)
