"""The tables and figures of the paper's main text."""

from dataclasses import replace
from itertools import product

from prolip.research.catalogue.experiment import Experiment, Line
from prolip.research.catalogue.lines import (
    ANCHORED,
    AUTHORS_GRID,
    COCOOP,
    COOP,
    COOP_PHRASE,
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
from prolip.research.datasets import VARIANTS

# fmt: off
_GRID_CURVE = replace(GRID_SEARCH, label="ProLIP (grid search)", paper="ProLIP (grid search)")

_SENSITIVITY = (
    *(replace(line, in_figure=False) for line in (ZERO, _GRID_CURVE, ANCHORED)),
    *(
        named(
            "prolip", f"ProLIP, lr={power(lr)}, lam={lam:g}", key=f"lr{power(lr)}_lam{lam:g}",
            options=adam(lam, lr=lr, **({"precision": "float16"} if lr == 1e-6 else {})),
        )
        for lr, lam in product((1e-6, *LRS), (1.0, 0.1, 0.01, 0.0))
    ),
)

_VARIANTS = (
    ZERO, replace(_GRID_CURVE, paper=None),
    *(
        entry
        for lam in ("1/N", "1/N^2", "0")
        for entry in each_lr("prolip", f"ProLIP, lam={lam}", adam(lam), key=f"lam{lam}")
    ),
    Line("exact_1/N", "ProLIP, exact, lam=1/N", "prolip", exact("1/N")),
    Line("exact_1/N^2", "ProLIP, exact, lam=1/N^2", "prolip", exact("1/N^2")),
    ANCHORED,
)

_MAPLE = (
    named("maple", "MaPLe*", key="maple_shallow", options={"depth": 1}),
    named("maple", "MaPLe †", key="maple_shared", options={"shared": True}),
    named("maple", "MaPLe ‡"),
)
_ZERO_COOP = replace(ZERO, template="coop")
_COOP_4 = named("coop", "CoOp", key="coop_4", options={"contexts": 4, "epochs": 50})

MAIN_TEXT = (
    Experiment(
        "few_shot_validation", "Few-shot classification with few-shot validation", "Table 1",
        "few_shot",
        VALIDATED, validation="shots",
        published="few_shot_validation",
        note="Every hyperparameter is chosen on as many validation shots as there are training shots.",
    ),
    Experiment(
        "sensitivity", "Sensitivity to learning rate and lam", "Figure 4 and Table 10", "few_shot",
        _SENSITIVITY,
        published="sensitivity", plot="heat_map",
    ),
    Experiment(
        "validation_free", "Few-shot classification without a validation set", "Table 2b", "few_shot",
        (
            ZERO, PROGRAD, PLOT,
            named("task_res", "TaskRes", options={"solver": "sgd"}, template="clap"), TASK_RES[1],
            named("clap_tip_adapter_f", "Tip-Adapter-F", template="clap"),
            Line("tip_adapter_f", "Tip-Adapter-F, its authors' steps", "tip_adapter_f"),
            Line("cross_modal", "Cross-modal LP, exact", "cross_modal"),
            named("clap", "CLAP", options={"solver": "sgd"}, template="clap"),
            Line("clap_exact", "CLAP, exact", "clap", {"solver": "exact"}),
            PROLIP, EXACT,
            ANCHORED,
        ),
        published="validation_free",
    ),
    Experiment(
        "variants", "ProLIP without a validation set: lam as a function of N", "Table 2a and Table 11",
        "few_shot",
        _VARIANTS,
        published="variants", band="learning rates",
    ),
    Experiment(
        "rla", "Regularized Linear Adapter against CLIP-Adapter", "Figure 5 and Table 19", "few_shot",
        (
            *(
                entry
                for alpha in (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)
                for entry in each_lr("clip_adapter", f"CLIP-Adapter, alpha={alpha:g}", {"alpha": alpha})
            ),
            *each_lr("rla", "RLA", adam("1/N")), *each_lr("prolip", "ProLIP", adam("1/N")),
            Line("rla_exact", "RLA, exact", "rla", exact()),
            Line("prolip_exact", "ProLIP, exact", "prolip", exact()),
            ANCHORED,
        ),
        published="rla", band="learning rates",
    ),
    Experiment(
        "cross_dataset", "From 4-shot ImageNet to ten other datasets", "Table 3", "transfer",
        (ZERO, COOP, COCOOP, PROGRAD, *FIXED, ANCHORED),
        layout="targets", datasets=("imagenet",),
        targets=(
            "caltech101", "oxford_pets", "stanford_cars", "flowers102", "food101", "fgvc_aircraft", "sun397",
            "dtd", "eurosat", "ucf101",
        ),
        shots=(4,), published="cross_dataset", plot="bars",
    ),
    Experiment(
        "domain", "Domain generalization from 4-shot ImageNet", "Table 4", "transfer",
        (
            ZERO, named("linear_probe", "LP"), COOP, COCOOP, PROGRAD, *TASK_RES, TIP, *FIXED, ANCHORED,
        ),
        layout="targets", models=("RN50", "RN101", "ViT-B/16", "ViT-B/32"), datasets=("imagenet",),
        targets=VARIANTS, shots=(4,), published="domain", plot="bars",
    ),
    Experiment(
        "domain_lr", "Domain generalization at the learning rate 1e-2", 'main text, "Domain generalization"',
        "transfer",
        (
            *(
                line
                for label, start in (
                    ("ProLIP", FIXED[0]), ("Tip-Adapter-F", TIP),
                    ("TaskRes", replace(TASK_RES[0], by_dataset={}, options={"solver": "adam", "lr": 2e-4})),
                )
                for line in (
                    replace(start, label=label, paper=None),
                    replace(
                        start, key=f"{start.key}_1e-2", label=f"{label}, lr=1e-2", paper=label,
                        base=start.key, options={**start.options, "lr": 1e-2},
                    ),
                )
            ),
            ANCHORED,
        ),
        layout="targets", datasets=("imagenet",), targets=VARIANTS, shots=(4,), published="domain_lr",
        plot="bars", note="The paper gives the loss of the mean over the variants, against its own rate.",
    ),
    Experiment(
        "base_to_new", "Base-to-new generalization", "Tables 5a, 12a and 17: RN50, 4 shots", "base_to_new",
        (ZERO, COOP, COCOOP, PROGRAD, *FIXED, ANCHORED),
        layout="base_to_new", shots=(4,), published="base_to_new_rn50",
        published_per_dataset="base_to_new_per_dataset_rn50", plot="bars",
    ),
    Experiment(
        "base_to_new_maple", "Base-to-new generalization, three forms of MaPLe",
        "Table 5b: ViT-B/16, 16 shots", "base_to_new",
        (_ZERO_COOP, COOP_PHRASE, COCOOP, *_MAPLE, FIXED[0], ANCHORED),
        layout="base_to_new", models=("ViT-B/16",), shots=(16,), template="photo",
        published="base_to_new_main_vit", columns={"H_t2": "H"}, plot="bars",
        note="MaPLe* has prompts in the first layer alone; MaPLe † has one coupling for all layers.",
    ),
    Experiment(
        "base_to_new_vit", "Base-to-new generalization", "Tables 12b and 18: ViT-B/16, 16 shots",
        "base_to_new",
        (_ZERO_COOP, COOP_PHRASE, COCOOP, replace(_MAPLE[2], label="MaPLe", paper="MaPLe"), *FIXED, ANCHORED),
        layout="base_to_new", models=("ViT-B/16",), shots=(16,), template="photo",
        published="base_to_new_vit", published_per_dataset="base_to_new_per_dataset_vit", plot="bars",
        note='ProLIP has "a photo of a {}." for every dataset, as the authors\' README says of the figures.',
    ),
    Experiment(
        "full_tuning", "Full and last-layer fine-tuning", "Table 6", "few_shot",
        (
            ZERO, named("full", "Full fine-tuning", options={"lr": 1e-5}),
            named("last_layer", "Last layer, lr=1e-5", key="last_layer_lr1e-5", options={"lr": 1e-5}),
            named("last_layer", "Last layer, lr=1e-4", key="last_layer_lr1e-4", options={"lr": 1e-4}),
            *(
                named("prolip", f"ProLIP, lam={lam}", key=f"prolip_lam{lam}", options=adam(lam, lr=1e-5))
                for lam in ("0", "1/N", "1/N^2")
            ),
            ANCHORED,
        ),
        published="full_tuning",
    ),
    Experiment(
        "siglip", "ProLIP with SigLIP", "Table 7", "few_shot",
        (
            named("zero_shot", "Zero-shot", paper="SigLIP (0-shot)"),
            named(
                "prolip", "ProLIP (grid search)", key="prolip_grid", options={"solver": "adam"},
                grid=AUTHORS_GRID,
            ),
            *(
                named(
                    "prolip", f"ProLIP, lam={lam}", key=f"lam{lam}", options=adam(lam), over=OVER_LRS[1:],
                    validation="none",
                )
                for lam in ("1/N", "1/N^2")
            ),
            ANCHORED,
        ),
        models=("SigLIP ViT-B/16",), views=1, validation="shots", published="siglip",
        note="One view. The paper does not say which matrix it tunes; here it is the pooling head's fc2.",
    ),
    Experiment(
        "complementarity", "Complementarity to other methods", "Table 8", "few_shot",
        (
            ZERO, *sums("exact", {"prolip.lam": "1/N"}, exact()), *sums("adam", {}, adam("1/N", lr=1e-4)),
            replace(ANCHORED, base="prolip"),
        ),
        published="complementarity",
        note="The paper's recipe is Adam's. The exact sum goes to its minimum where it has one.",
    ),
    Experiment(
        "test_time", "Test-time adaptation", "Table 9", "transfer",
        (
            ZERO, named("zero_shot", "TPT", key="tpt", protocol="test_time_tpt"),
            named("zero_shot", "ProLIP test-time", key="test_time", protocol="test_time_prolip"),
            _COOP_4,
            replace(
                _COOP_4, key="tpt_coop", label="TPT + CoOp", paper="TPT + CoOp", protocol="test_time_tpt"
            ),
            named("prolip", "ProLIP", options=adam("1/N", lr=1e-5)),
            named(
                "prolip", "ProLIP test-time + ProLIP", key="test_time_prolip",
                options=adam("1/N", lr=1e-5), protocol="test_time_prolip",
            ),
            ANCHORED,
        ),
        layout="targets", datasets=("imagenet",),
        targets=("imagenet_a", "imagenet_v2", "imagenet_r", "imagenet_sketch"), shots=(16,), seeds=(1,),
        published="test_time", plot="bars",
        note="64 views of every test image go through the tower in each run.",
    ),
)
# fmt: on
