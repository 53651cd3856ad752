"""The methods, by name. A method is one file; to add one, write the file and add a line here."""

from __future__ import annotations

import importlib
from typing import Any

from prolip.core import Fitted, Head, SavedModelError, Text
from prolip.core.arrays import Array
from prolip.core.errors import UsageError, unknown_name
from prolip.methods.base import Method
from prolip.methods.options import check_kind

__all__ = ["Method", "create", "get", "names", "options", "restore"]

REGISTRY = {
    "zero_shot": "prolip.methods.zero_shot:ZeroShot",
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
    "ensemble": "prolip.methods.ensemble:Ensemble",
    "auto": "prolip.methods.auto:Auto",
    # through the text tower
    "coop": "prolip.methods.prompts.coop:CoOp",
    "cocoop": "prolip.methods.prompts.cocoop:CoCoOp",
    "kgcoop": "prolip.methods.prompts.kgcoop:KgCoOp",
    "prograd": "prolip.methods.prompts.prograd:ProGrad",
    "plot": "prolip.methods.prompts.plot:PLOT",
    # through both towers, or the image tower
    "maple": "prolip.methods.prompts.maple:MaPLe",
    "full": "prolip.methods.finetune.full:FullFineTuning",
    "last_layer": "prolip.methods.finetune.last_layer:LastLayer",
    "norm_tuning": "prolip.methods.finetune.norm_tuning:NormTuning",
    "clip_lora": "prolip.methods.finetune.clip_lora:CLIPLoRA",
}

SUMS = ("prolip+rla", "prolip+tip_adapter_f", "prolip+task_res")

# `kind` of a fitted model: its class, for models that come back from disk.
KINDS = {
    "projected": "prolip.core.fitted:Projected",
    "linear": "prolip.methods.fitted:LinearClassifier",
    "cache": "prolip.methods.fitted:CacheClassifier",
    "adapter": "prolip.methods.fitted:AdapterClassifier",
    "text_projected": "prolip.methods.fitted:TextProjected",
    "combined": "prolip.methods.combined:Combined",
    "prompted": "prolip.methods.prompts.fitted:Prompted",
    "conditional": "prolip.methods.prompts.cocoop:Conditional",
    "transported": "prolip.methods.prompts.plot:Transported",
    "coupled": "prolip.methods.prompts.maple:Coupled",
    "tuned": "prolip.methods.finetune.tuned:Tuned",
}


def names() -> list[str]:
    """Every method's name, and the sums that the paper reports. Any others combine as well: "a+b"."""
    return [*REGISTRY, *SUMS]


def get(name: str) -> type[Method]:
    """The class behind a name; for "a+b", the sum of both."""
    if name in REGISTRY:
        method: type[Method] = _import(REGISTRY[name])
        return method
    if "+" in name:
        from prolip.methods.composition import compose

        return compose(name)
    raise unknown_name("method", name, names())


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
    method, known = get(name), options(name)
    for option in given:
        if option not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise UsageError(f"method {name!r} has no option {option!r}: {takes}")
        check_kind(method, name, option, given[option])
    return method.create(**given)


def restore(
    kind: str, tensors: dict[str, Array], head: Head, text: Text, scale: float, info: dict[str, Any]
) -> Fitted:
    """A fitted model from the tensors that it was saved as."""
    if kind not in KINDS:
        raise SavedModelError(f"the model is of a kind that this version does not know: {kind!r}")
    fitted: Fitted = _import(KINDS[kind]).restore(tensors, head, text, scale, info)
    return fitted


def _import(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)
