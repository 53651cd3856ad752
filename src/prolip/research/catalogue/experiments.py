"""The experiments: the paper's main text, its supplement, and what others published.

`experiments.json` has what each of them is; here are the lines of its table, by its name, and functions that
create lines.

The paper trains with Adam. Where it reports a mean over learning rates, the exact solver, which has none,
computes the minimum that those runs approach. A line with a published figure runs the program behind that
figure; lines called "exact" are ours, and have none.
"""

import json
import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from prolip.data import templates_for
from prolip.research.catalogue.experiment import Entry, Experiment, Options, register_experiment
from prolip.research.datasets import ELEVEN
from prolip.research.protocols.run import lists_to_tuples

LRS = (1e-5, 1e-4, 1e-3, 1e-2)

# The authors' grid and its order: learning rates outside, lam inside, both from large to small. The first of
# equal validation accuracies wins.
GRID_LRS = tuple(10.0**-k for k in range(2, 9))
GRID_LAMS = (10.0, 1.0, 0.1, 0.01, 0.001, 0.0001, 0.0)
GRID_EXACT = tuple({"lam": lam} for lam in GRID_LAMS if lam)  # without a penalty there is no minimum


def power(lr: float) -> str:
    """Format a learning rate as the published tables do."""
    return f"1e-{round(-math.log10(lr))}"


def precision(lam: str | float, lr: float = 1.0) -> Options:
    """Return the authors' float16 where it makes a difference: without a penalty, and at very small rates."""
    return {"precision": "float16"} if lam in ("0", 0.0) or lr < 2e-6 else {}


def adam(lam: str | float, **more: Any) -> Options:
    """Return options of the paper's training."""
    return {"solver": "adam", "lam": lam, **precision(lam, more.get("lr", 1.0)), **more}


AUTHORS_GRID = tuple({"lr": lr, "lam": lam, **precision(lam, lr)} for lr, lam in product(GRID_LRS, GRID_LAMS))


def exact(lam: str | float = "1/N", **more: Any) -> Options:
    """Return options of the exact minimum."""
    return {"solver": "exact", "lam": lam, **more}


OVER_LRS: tuple[Options, ...] = tuple({"lr": lr} for lr in LRS)


def named(method: str, label: str, **more: Any) -> Entry:
    """Create a line that the paper calls by the same name; `more` are fields of `Entry`."""
    return Entry(
        more.pop("key", method), label, method, published_row=more.pop("published_row", label), **more
    )


def each_lr(method: str, label: str, options: Options, key: str | None = None) -> tuple[Entry, ...]:
    """Create a line for each learning rate, for the table alone, and their mean."""
    key = key or label.lower().replace(", ", "_").replace(" ", "_")
    each = {f"lr={power(lr)}": {**options, "lr": lr} for lr in LRS}
    lines = [
        named(method, f"{label}, {rate}", key=f"{key}_{rate.replace('=', '')}", options=mine, in_figure=False)
        for rate, mine in each.items()
    ]
    return (*lines, named(method, label, key=key, options=options, averaged_over=OVER_LRS))


def sums(how: str, options: Options, alone: Options, published: bool = False) -> tuple[Entry, ...]:
    """Create entries of ProLIP alone, and with each of the others."""
    end = "" if how == "exact" else "_" + how.lower().replace(", lr=", "_")
    base, others = f"prolip{end}", {"rla": "RLA", "tip_adapter_f": "Tip-Adapter-F", "task_res": "TaskRes"}
    first = Entry(base, f"ProLIP, {how}", "prolip", alone, published_row="ProLIP" if published else None)
    return first, *(
        Entry(
            f"prolip+{name}{end}",
            f"ProLIP + {label}, {how}",
            f"prolip+{name}",
            options,
            published_row=f"ProLIP + {label}" if published else None,
            gain_over=base,
        )
        for name, label in others.items()
    )


# Options that authors have for single datasets: prompts, epochs, rates. CoOp's zero-shot prompts are each
# dataset's own, and a single one for ImageNet. KgCoOp's teacher is these, with another one for textures;
# ProGrad starts from and is guided by a phrase of each dataset, with the class name at its end.
_PROMPTS = {name: templates_for(name)[0] for name in ELEVEN} | {"imagenet": "a photo of a {}."}
_KGCOOP = _PROMPTS | {"dtd": "a photo of a {}, a type of texture."}
_PROGRAD = _PROMPTS | {
    "oxford_pets": "a type of pet, a photo of a {}.",
    "flowers102": "a type of flower, a photo of a {}.",
    "fgvc_aircraft": "a type of aircraft, a photo of a {}.",
    "food101": "a type of food, a photo of {}.",
    "dtd": "a texture of {}.",
}

_COOP_OPTIONS: dict[str, Options] = {"imagenet": {"epochs": 50}}
_PLOT_OPTIONS: dict[str, Options] = {"imagenet": {"pooled": True}}
_KGCOOP_OPTIONS: dict[str, Options] = {name: {"teacher": prompt} for name, prompt in _KGCOOP.items()}
_PROGRAD_OPTIONS: dict[str, Options] = {
    name: {"teacher": prompt, "init": prompt.partition(" {}")[0], **_COOP_OPTIONS.get(name, {})}
    for name, prompt in _PROGRAD.items()
}
for _name in ("flowers102", "dtd", "eurosat"):
    _PROGRAD_OPTIONS[_name] |= {"late_conflict": 0.8}
_TASK_RES_OPTIONS: dict[str, Options] = {"imagenet": {"lr": 2e-4}, "flowers102": {"alpha": 1.0}}

ZERO = named("zero_shot", "Zero-shot", published_row="CLIP (0-shot)")
TIP = named("tip_adapter_f", "Tip-Adapter-F")
CROPS: Options = {"view_area": 0.08}  # new ones in each epoch, as in CoOp's program and those after it
# CLAP's program, for all that it compares with: crops of its own, and prompts.
CLAP_PROGRAM: dict[str, Any] = {"template": "clap", "view_area": 0.08}
COOP = named("coop", "CoOp", options=CROPS, by_dataset=_COOP_OPTIONS)
# CoCoOp's authors' run of CoOp.
COOP_PHRASE = named(
    "coop", "CoOp", key="coop_phrase", options={"init": "a photo of a", **CROPS}, by_dataset=_COOP_OPTIONS
)
COCOOP = named("cocoop", "CoCoOp", options=CROPS)
PLOT = named("plot", "PLOT", options=CROPS, by_dataset=_PLOT_OPTIONS)
PROGRAD = named("prograd", "ProGrad", options=CROPS, by_dataset=_PROGRAD_OPTIONS)
TASK_RES = (
    named("task_res", "TaskRes", options={"solver": "adam"}, by_dataset=_TASK_RES_OPTIONS),
    Entry("task_res_exact", "TaskRes, exact", "task_res", {"solver": "exact"}),
)
PROLIP = Entry(
    "prolip_adam", "ProLIP, Adam", "prolip", adam("1/N"), averaged_over=OVER_LRS, published_row="ProLIP"
)
EXACT = Entry("prolip", "ProLIP, exact", "prolip", exact())
ANCHORED = Entry("anchored", "Anchored regression (ours)", "anchored", validation="none")
GRID_SEARCH = named(
    "prolip", "ProLIP", key="prolip_adam", options={"solver": "adam"}, grid=AUTHORS_GRID, validation="shots"
)

VALIDATED = (
    ZERO,
    named("coop", "CoOp", options={"program": "lp++", "view_area": 0.5}),
    PLOT,
    named("kgcoop", "KgCoOp", options=CROPS, by_dataset=_KGCOOP_OPTIONS),
    PROGRAD,
    named("clip_adapter", "CLIP-Adapter", options={"solver": "sgd"}),
    Entry("clip_adapter_adam", "CLIP-Adapter, Adam, alpha searched", "clip_adapter", {"solver": "adam"}),
    TIP,
    named(
        "tip_adapter_f_star", "Tip-Adapter-F*", key="tip_adapter_f_star_shared", options={"shared_keys": True}
    ),
    Entry("tip_adapter_f_star", "Tip-Adapter-F*, as intended", "tip_adapter_f_star"),
    named("linear_probe", "LP", options={"C": "grid"}),
    named("lp_plus_plus", "LP++"),
    GRID_SEARCH,
    Entry("prolip", "ProLIP, exact", "prolip", {"solver": "exact"}, grid=GRID_EXACT),
    ANCHORED,
)

# Domain generalization, cross-dataset and base-to-new: the paper's fixed setting, and the minimum.
FIXED = (Entry("prolip_adam", "ProLIP, Adam", "prolip", adam("1/N", lr=1e-5), published_row="ProLIP"), EXACT)

# fmt: off
_GRID_CURVE = replace(GRID_SEARCH, label="ProLIP (grid search)", published_row="ProLIP (grid search)")

_SENSITIVITY = (
    *(replace(entry, in_figure=False) for entry in (ZERO, _GRID_CURVE, ANCHORED)),
    *(
        named(
            "prolip", f"ProLIP, lr={power(lr)}, lam={lam:g}", key=f"lr{power(lr)}_lam{lam:g}",
            options=adam(lam, lr=lr),
        )
        for lr, lam in product((1e-6, *LRS), (1.0, 0.1, 0.01, 0.0))
    ),
)

_VARIANTS = (
    ZERO, replace(_GRID_CURVE, published_row=None),
    *(
        entry
        for lam in ("1/N", "1/N^2", "0")
        for entry in each_lr("prolip", f"ProLIP, lam={lam}", adam(lam), key=f"lam{lam}")
    ),
    Entry("exact_1/N", "ProLIP, exact, lam=1/N", "prolip", exact("1/N")),
    Entry("exact_1/N^2", "ProLIP, exact, lam=1/N^2", "prolip", exact("1/N^2")),
    ANCHORED,
)

_MAPLE = (
    named("maple", "MaPLe*", key="maple_shallow", options={"depth": 1}),
    named("maple", "MaPLe †", key="maple_shared", options={"shared": True}),
    named("maple", "MaPLe ‡"),
)
_IMAGENET_BATCH = {"imagenet": {"batch_size": 256}}  # as main_imagenet.py shuffles its images
_ZERO_COOP = replace(ZERO, template="coop")
_COOP_4 = named("coop", "CoOp", key="coop_4", options={"contexts": 4, "epochs": 50, **CROPS})

_TUNING_LRS = {"ProLIP": FIXED[0], "Tip-Adapter-F": TIP}
_TUNING_LRS["TaskRes"] = replace(TASK_RES[0], by_dataset={}, options={"solver": "adam", "lr": 2e-4})
_AT_ANOTHER_LR = tuple(
    entry
    for label, start in _TUNING_LRS.items()
    for entry in (
        replace(start, label=label, published_row=None),
        replace(
            start, key=f"{start.key}_1e-2", label=f"{label}, lr=1e-2", published_row=label,
            gain_over=start.key, options={**start.options, "lr": 1e-2},
        ),
    )
)

ENTRIES: dict[str, tuple[Entry, ...]] = {
    "few_shot_validation": VALIDATED,
    "sensitivity": _SENSITIVITY,
    "validation_free": (
        ZERO, PROGRAD, PLOT,
        named("task_res", "TaskRes", options={"solver": "sgd"}, **CLAP_PROGRAM), TASK_RES[1],
        named("clap_tip_adapter_f", "Tip-Adapter-F", **CLAP_PROGRAM),
        Entry("tip_adapter_f", "Tip-Adapter-F, its authors' steps", "tip_adapter_f"),
        named("clap_cross_modal", "Cross-modal LP", **CLAP_PROGRAM),
        Entry("cross_modal", "Cross-modal LP, exact", "cross_modal"),
        named("clap", "CLAP", options={"solver": "sgd"}, **CLAP_PROGRAM),
        Entry("clap_exact", "CLAP, exact", "clap", {"solver": "exact"}),
        PROLIP, EXACT, ANCHORED,
    ),
    "variants": _VARIANTS,
    "rla": (
        *(
            entry
            for alpha in (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)
            for entry in each_lr("clip_adapter", f"CLIP-Adapter, alpha={alpha:g}", {"alpha": alpha})
        ),
        *each_lr("rla", "RLA", adam("1/N")), *each_lr("prolip", "ProLIP", adam("1/N")),
        Entry("rla_exact", "RLA, exact", "rla", exact()),
        Entry("prolip_exact", "ProLIP, exact", "prolip", exact()),
        ANCHORED,
    ),
    "cross_dataset": (ZERO, COOP, COCOOP, PROGRAD, *FIXED, ANCHORED),
    "domain": (
        ZERO, named("linear_probe", "LP"), COOP, COCOOP, PROGRAD, *TASK_RES, TIP, *FIXED, ANCHORED,
    ),
    "domain_lr": (*_AT_ANOTHER_LR, ANCHORED),
    "base_to_new": (ZERO, COOP, COCOOP, PROGRAD, *FIXED, ANCHORED),
    "base_to_new_maple": (_ZERO_COOP, COOP_PHRASE, COCOOP, *_MAPLE, FIXED[0], ANCHORED),
    "base_to_new_vit": (
        _ZERO_COOP, COOP_PHRASE, COCOOP, replace(_MAPLE[2], label="MaPLe", published_row="MaPLe"), *FIXED,
        ANCHORED,
    ),
    "full_tuning": (
        ZERO, named("full", "Full fine-tuning", options={"lr": 1e-5}, by_dataset=_IMAGENET_BATCH),
        *(
            named(
                "last_layer", f"Last layer, lr={lr}", key=f"last_layer_lr{lr}", options={"lr": float(lr)},
                by_dataset=_IMAGENET_BATCH,
            )
            for lr in ("1e-5", "1e-4")
        ),
        Entry(
            "full_regularised", "Full fine-tuning, lam=1/N", "full", {"lr": 1e-5, "lam": "1/N"},
            by_dataset=_IMAGENET_BATCH,
        ),
        *(
            named("prolip", f"ProLIP, lam={lam}", key=f"prolip_lam{lam}", options=adam(lam, lr=1e-5))
            for lam in ("0", "1/N", "1/N^2")
        ),
        ANCHORED,
    ),
    "siglip": (
        named("zero_shot", "Zero-shot", published_row="SigLIP (0-shot)"),
        replace(_GRID_CURVE, key="prolip_grid", validation=None),
        *(
            named(
                "prolip", f"ProLIP, lam={lam}", key=f"lam{lam}", options=adam(lam),
                averaged_over=OVER_LRS[1:], validation="none",
            )
            for lam in ("1/N", "1/N^2")
        ),
        ANCHORED,
    ),
    "complementarity": (
        ZERO, *sums("exact", {}, exact()),
        *sums("Adam", {"solver": "adam"}, adam("1/N", lr=1e-4), published=True),
        *sums("Adam, lr=1e-2", {"solver": "adam", "lr": 1e-2}, adam("1/N", lr=1e-2)),
        replace(ANCHORED, gain_over="prolip"),
    ),
    "test_time": (
        ZERO, named("zero_shot", "TPT", key="tpt", protocol="test_time_tpt"),
        named("zero_shot", "ProLIP test-time", key="test_time", protocol="test_time_prolip"),
        _COOP_4,
        replace(
            _COOP_4, key="tpt_coop", label="TPT + CoOp", published_row="TPT + CoOp", protocol="test_time_tpt"
        ),
        named("prolip", "ProLIP", options=adam("1/N", lr=1e-5)),
        named(
            "prolip", "ProLIP test-time + ProLIP", key="test_time_prolip", options=adam("1/N", lr=1e-5),
            protocol="test_time_prolip",
        ),
        ANCHORED,
    ),
    "per_dataset": VALIDATED,
    "grid_search": (GRID_SEARCH,),
    "text_projector": (
        ZERO,
        named(
            "prolip_text", "ProLIP (text), Adam", key="prolip_text_adam",
            options=adam("1/N", per_template=False), averaged_over=OVER_LRS, published_row="ProLIP (text)",
        ),
        Entry("prolip_text", "ProLIP (text), exact", "prolip_text", exact()),
        PROLIP, EXACT, ANCHORED,
    ),
    "text_projector_lr": (
        *each_lr("prolip_text", "ProLIP (text)", adam("1/N", per_template=False))[:-1], ANCHORED,
    ),
    "lora": (ZERO, named("clip_lora", "CLIP-LoRA"), *FIXED, ANCHORED),
    "lora_base_to_new": (ZERO, named("clip_lora", "CLIP-LoRA"), *FIXED, ANCHORED),
    "normalisation": (
        Entry("norm_tuning", "BatchNorm or LayerNorm", "norm_tuning", published_row="{model} {norm}"),
        replace(PROLIP, published_row="{model} ProLIP"), EXACT, ANCHORED,
    ),
    "bias": (
        PROLIP, EXACT,
        Entry(
            "prolip_bias_adam", "ProLIP with the bias, Adam", "prolip_bias", adam("1/N"),
            averaged_over=OVER_LRS,
        ),
        Entry("prolip_bias", "ProLIP with the bias, exact", "prolip_bias", exact()), ANCHORED,
    ),
    "views": (
        *(
            Entry(f"views{n}{end}", f"{n} view{'s' if n > 1 else ''}, {how}", "prolip", options, views=n)
            for end, how, options in (("_adam", "Adam", adam("1/N", lr=1e-4)), ("", "exact", exact()))
            for n in (1, 2, 5, 10, 20, 50, 100, 300)
        ),
        ANCHORED,
    ),
    "umap": (EXACT,),
    "more_shots": (ZERO, *TASK_RES, PROLIP, EXACT, ANCHORED),
    "temperature": (
        *(
            Entry(
                f"temp{factor:g}", f"{factor:g} x the model's scale", "prolip", adam("1/N", lr=1e-4),
                published_row=f"temp={100 * factor:g}", scale=factor,
            )
            for factor in (0.5, 1.0, 1.5)
        ),
        ANCHORED,
    ),
    "templates": tuple(
        entry
        for start in (ZERO, EXACT, ANCHORED)
        for entry in (
            start,
            replace(
                start, key=f"{start.key}_photo", label=f'{start.label}, "a photo of a {{}}."',
                published_row=None, template="photo",
            ),
        )
    ),
    "timing": (
        Entry("prolip_adam", "ProLIP, Adam", "prolip", adam("1/N", lr=1e-4)), EXACT,
        Entry("task_res", "TaskRes", "task_res", {"solver": "adam"}),
        Entry("clap", "CLAP", "clap", {"solver": "sgd"}), replace(TIP, published_row=None),
        Entry("lp_plus_plus", "LP++", "lp_plus_plus"), replace(ANCHORED, validation=None),
    ),
    "timing_test_time": (
        Entry("test_time", "ProLIP test-time", "zero_shot"),
        Entry("tpt", "TPT", "zero_shot", protocol="timing_tpt"),
    ),
    "parameters": (),
}
# fmt: on

for _fields in json.loads(Path(__file__).with_name("experiments.json").read_text(encoding="utf-8")):
    register_experiment(Experiment(entries=ENTRIES[_fields["name"]], **lists_to_tuples(_fields)))
