"""The methods, by name. One of this package is a file here and a line below; see CONTRIBUTING.md."""

import dataclasses
import importlib
import warnings
from typing import Any

from prolip.core import Fitted, Head, SavedModelError, Settings, Text
from prolip.core.arguments import as_text
from prolip.core.arrays import Array
from prolip.core.errors import UnknownNameError, UsageError
from prolip.methods.base import Method, check_type
from prolip.methods.common import plugins
from prolip.methods.common.plugins import is_subclass

__all__ = ["Method", "available", "create", "from_settings", "get", "names", "options", "restore"]

REGISTRY = {
    "zero_shot": "prolip.methods.zero_shot:ZeroShot",
    "anchored": "prolip.methods.anchored:Anchored",
    "prolip": "prolip.methods.prolip:ProLIP",
    "rla": "prolip.methods.rla:RLA",
    "prolip_text": "prolip.methods.prolip_text:ProLIPText",
    "linear_probe": "prolip.methods.linear_probe:LinearProbe",
    "lp_plus_plus": "prolip.methods.lp_plus_plus:LPPlusPlus",
    "clap": "prolip.methods.clap:CLAP",
    "cross_modal": "prolip.methods.cross_modal:CrossModal",
    "task_res": "prolip.methods.task_res:TaskRes",
    "clip_adapter": "prolip.methods.clip_adapter:CLIPAdapter",
    "tip_adapter": "prolip.methods.tip_adapter:TipAdapter",
    "tip_adapter_f": "prolip.methods.tip_adapter:TipAdapterF",
    "tip_adapter_f_star": "prolip.methods.tip_adapter:TipAdapterFStar",
    "gda": "prolip.methods.gda:GDA",
    "proker": "prolip.methods.proker:ProKeR",
    # through the text tower
    "coop": "prolip.research.towers.coop:CoOp",
    "cocoop": "prolip.research.towers.cocoop:CoCoOp",
    "kgcoop": "prolip.research.towers.coop:KgCoOp",
    "prograd": "prolip.research.towers.coop:ProGrad",
    "plot": "prolip.research.towers.plot:PLOT",
    # through both towers, or the image tower
    "maple": "prolip.research.towers.maple:MaPLe",
    "full": "prolip.research.towers.fine_tuning:FullFineTuning",
    "last_layer": "prolip.research.towers.fine_tuning:LastLayer",
    "norm_tuning": "prolip.research.towers.fine_tuning:NormTuning",
    "clip_lora": "prolip.research.towers.clip_lora:CLIPLoRA",
}

SUMS = ("prolip+rla", "prolip+tip_adapter_f", "prolip+task_res")

# Where the fitted models are that come back from disk by their `kind`.
FITTED = (
    "prolip.core.fitted",
    "prolip.methods.anchored",
    "prolip.methods.common.classifiers",
    "prolip.methods.common.combined",
    "prolip.methods.proker",
    "prolip.research.towers.prompt_tuning",
    "prolip.research.towers.cocoop",
    "prolip.research.towers.plot",
    "prolip.research.towers.maple",
    "prolip.research.towers.fine_tuning",
)


def names() -> list[str]:
    """Every method's name: ours, the sums that the paper reports, and what other packages bring.

    Beside these, "a+b" is any sum, and "package.module:Class" a class that extends `Method`.
    """
    return [*REGISTRY, *SUMS, *plugins.entry_points()]


def available() -> dict[str, type[Method]]:
    """Every method by name; those of other packages that cannot be imported are left out, with a warning."""
    found = {}
    for name in names():
        try:
            found[name] = get(name)
        except UsageError as error:
            warnings.warn(str(error), stacklevel=2)
    return found


def get(name: str) -> type[Method]:
    """The class behind a name, a place like "package.module:Class", or a sum of those: "a+b"."""
    if "+" in as_text(name, "method"):
        from prolip.methods.composition import compose

        return compose(name)
    is_place = plugins.PLACE.fullmatch(name)
    place = name if is_place else REGISTRY.get(name) or plugins.entry_points().get(name)
    if place is None:
        raise UnknownNameError("method", name, names())
    return plugins.load(place, Method)  # type: ignore[type-abstract]


def options(name: str) -> list[str]:
    """The options that a method takes."""
    return get(name).options()


def create(name: str, **given: Any) -> Method:
    """A method with its options.

    Examples
    --------
    >>> create("prolip", lam="1/N").lam
    '1/N'
    """
    method = get(name)
    known = method.options()
    for option in given:
        if option not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise UsageError(f"method {name!r} has no option {option!r}: {takes}")
        check_type(method, name, option, given[option])
    return method.create(**given)


def from_settings(settings: Settings) -> Method:
    """The method that a fit settled on: fitted again, it searches for nothing.

    Settings may come from a file, so that no module is imported for being named in them.
    """
    for place in plugins.places_in([settings.method, settings.options]):
        plugins.require_trusted(place)
    return create(settings.method, **settings.options)


def restore(
    kind: str,
    tensors: dict[str, Array],
    config: dict[str, Any],
    head: Head,
    text: Text,
    settings: Settings,
    report: dict[str, Any],
) -> Fitted:
    """A fitted model from what it was saved as: its `kind`, `tensors()` and `config()`."""
    fitted = _fitted_class(kind)
    try:
        restored = fitted.restore(tensors, config, head, text)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        said = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise SavedModelError(f"the saved model ({kind}) is damaged: {said}") from error
    return dataclasses.replace(restored, settings=settings, report=report)


def _fitted_class(kind: str) -> type[Fitted]:
    for module in FITTED:
        for found in vars(importlib.import_module(module)).values():
            if is_subclass(found, Fitted) and vars(found).get("kind") == kind:  # type: ignore[type-abstract]
                return found
    if not plugins.PLACE.fullmatch(kind):
        raise SavedModelError(f"the model is of a kind that this version does not know: {kind!r}")
    return plugins.load_trusted(kind, Fitted)  # type: ignore[type-abstract]
