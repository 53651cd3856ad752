"""The experiments: the paper's main text, its supplement, and what others published.

`experiments.json` has what each of them is; here are the lines of its table, by its name.
"""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

from prolip.research.catalogue.entries import (
    ANCHORED,
    AUTHORS_GRID,
    CLAP_PROGRAM,
    COCOOP,
    COOP,
    COOP_PHRASE,
    CROPS,
    EXACT,
    FIXED,
    GRID_SEARCH,
    LRS,
    OVER_LRS,
    PLOT,
    PROGRAD,
    PROLIP,
    TASK_RES,
    TIP,
    VALIDATED,
    ZERO,
    adam,
    each_lr,
    exact,
    named,
    power,
    sums,
)
from prolip.research.catalogue.experiment import Entry, Experiment, register_experiment
from prolip.research.protocols.run import lists_to_tuples

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
    "base_to_new_all": (ZERO, *FIXED, ANCHORED),
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
        named(
            "prolip", "ProLIP (grid search)", key="prolip_grid", options={"solver": "adam"}, grid=AUTHORS_GRID
        ),
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
        ZERO, *sums("exact", {}, exact()), *sums("adam", {}, adam("1/N", lr=1e-4)),
        *sums("adam", {"lr": 1e-2}, adam("1/N", lr=1e-2), suffix="_1e-2"),
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
