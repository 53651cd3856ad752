"""Every table and figure of the paper, main text and supplement: one entry each.

The paper trains with Adam. Where it reports a mean over learning rates, the exact solver, which has none,
goes to what those runs approach: rows called "exact" stand beside the paper's own recipe.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

from prolip.bench.experiment import Experiment, Options, Row
from prolip.core.errors import unknown_name
from prolip.data import VARIANTS

LRS = (1e-5, 1e-4, 1e-3, 1e-2)

# The paper's backbones: what they are called here, and the shape of their projection (D, Do).
MODELS = {
    "RN50": "open_clip:RN50/openai",
    "RN101": "open_clip:RN101/openai",
    "ViT-B/16": "open_clip:ViT-B-16/openai",
    "ViT-B/32": "open_clip:ViT-B-32/openai",
    "SigLIP ViT-B/16": "open_clip:ViT-B-16-SigLIP/webli",
}
PROJECTIONS = {"RN50": (1024, 2048), "RN101": (512, 2048), "ViT-B/32": (512, 768), "ViT-B/16": (512, 768)}

# The authors' grid and its order: learning rates outside, lam inside, both from large to small. Of equal
# validation accuracies the first wins.
GRID_LRS = tuple(10.0**-k for k in range(2, 9))
GRID_LAMS = (10.0, 1.0, 0.1, 0.01, 0.001, 0.0001, 0.0)
GRID = tuple({"lr": lr, "lam": lam} for lr, lam in product(GRID_LRS, GRID_LAMS))
GRID_EXACT = tuple({"lam": lam} for lam in GRID_LAMS if lam)  # without a penalty there is no minimum


def power(lr: float) -> str:
    """A learning rate as the published tables write it."""
    return f"1e-{round(-math.log10(lr))}"


def _adam(lam: str | float, **more: Any) -> Options:
    return {"solver": "adam", "lam": lam, **more}


def _exact(lam: str | float = "1/N", **more: Any) -> Options:
    return {"solver": "exact", "lam": lam, **more}


_OVER_LRS: tuple[Options, ...] = tuple({"lr": lr} for lr in LRS)


def _named(method: str, label: str, **more: Any) -> Row:
    """A line that the paper calls by the same name."""
    return Row(more.pop("key", method), label, method, paper=more.pop("paper", label), **more)


def _each_lr(method: str, label: str, options: Options) -> tuple[Row, ...]:
    """A line for each learning rate, and their mean."""
    key = label.lower().replace(", ", "_").replace(" ", "_")
    lines = [
        Row(
            f"{key}_lr{power(lr)}",
            f"{label}, lr={power(lr)}",
            method,
            {**options, "lr": lr},
            paper=f"{label}, lr={power(lr)}",
        )
        for lr in LRS
    ]
    return (*lines, Row(key, label, method, options, over=_OVER_LRS, paper=label))


def _sums(solver: str, options: Options, alone: Options) -> tuple[Row, ...]:
    """ProLIP alone, and with each of the others, by one solver."""
    end, how = ("_adam", "Adam") if solver == "adam" else ("", "exact")
    mine = {**options, "solver": "adam"} if solver == "adam" else options
    others = {"rla": "RLA", "tip_adapter_f": "Tip-Adapter-F", "task_res": "TaskRes"}
    lines = [
        Row(
            f"prolip+{name}{end}",
            f"ProLIP + {label}, {how}",
            f"prolip+{name}",
            mine,
            paper=f"ProLIP + {label}",
        )
        for name, label in others.items()
    ]
    return (Row(f"prolip{end}", f"ProLIP, {how}", "prolip", alone, paper="ProLIP"), *lines)


ZERO = _named("zero_shot", "Zero-shot", paper="CLIP (0-shot)")
_TIP = _named("tip_adapter_f", "Tip-Adapter-F")

_VALIDATED = (
    ZERO,
    _named("coop", "CoOp"),
    _named("plot", "PLOT"),
    _named("kgcoop", "KgCoOp"),
    _named("prograd", "ProGrad"),
    _named("clip_adapter", "CLIP-Adapter"),
    _TIP,
    _named("tip_adapter_f_star", "Tip-Adapter-F*"),
    _named("linear_probe", "LP"),
    _named("lp_plus_plus", "LP++"),
    _named("prolip", "ProLIP", key="prolip_adam", options={"solver": "adam"}, grid=GRID),
    Row("prolip", "ProLIP, exact", "prolip", {"solver": "exact"}, grid=GRID_EXACT),
)
_PROLIP_ADAM = _VALIDATED[-2]

_SENSITIVITY = tuple(
    _named(
        "prolip",
        f"ProLIP, lr={power(lr)}, lam={lam:g}",
        key=f"lr{power(lr)}_lam{lam:g}",
        options=_adam(lam, lr=lr),
    )
    for lr, lam in product(LRS, (1.0, 0.1, 0.01, 0.0))
)

# Domain generalization, cross-dataset and base-to-new: the paper's fixed setting, and the minimum.
_FIXED = (
    Row("prolip_adam", "ProLIP, Adam", "prolip", _adam("1/N", lr=1e-5), paper="ProLIP"),
    Row("prolip", "ProLIP, exact", "prolip", _exact(), paper="ProLIP"),
)

_VARIANTS = (
    ZERO,
    *(
        row
        for lam in ("1/N", "1/N^2", "0")
        for row in (
            *(
                _named(
                    "prolip",
                    f"ProLIP, lam={lam}, lr={power(lr)}",
                    key=f"lam{lam}_lr{power(lr)}",
                    options=_adam(lam, lr=lr),
                )
                for lr in LRS
            ),
            _named("prolip", f"ProLIP, lam={lam}", key=f"lam{lam}", options=_adam(lam), over=_OVER_LRS),
        )
    ),
    Row("exact_1/N", "ProLIP, exact, lam=1/N", "prolip", _exact("1/N"), paper="ProLIP, lam=1/N"),
    Row("exact_1/N^2", "ProLIP, exact, lam=1/N^2", "prolip", _exact("1/N^2"), paper="ProLIP, lam=1/N^2"),
)

_ALL = (
    Experiment(
        "few_shot_validation",
        "Few-shot classification with few-shot validation",
        "Table 1",
        "few_shot_validation",
        _VALIDATED,
        published="few_shot_validation",
        note="Every hyperparameter is chosen on as many validation shots as there are training shots.",
    ),
    Experiment(
        "per_dataset",
        "Few-shot validation, each dataset",
        "Tables 23 and 24",
        "few_shot_validation",
        _VALIDATED,
        layout="datasets",
        published="per_dataset",
        note="The runs of few_shot_validation, shown for each dataset.",
    ),
    Experiment(
        "grid_search",
        "What the grid search chooses",
        "Figure 6",
        "few_shot_validation",
        (_PROLIP_ADAM,),
        layout="chosen",
        plot="chosen",
        note="The ProLIP runs of few_shot_validation: how often each learning rate and lam was the best.",
    ),
    Experiment(
        "sensitivity",
        "Sensitivity to learning rate and lam",
        "Figure 4 and Table 10",
        "few_shot",
        _SENSITIVITY,
        published="sensitivity",
        plot="sensitivity",
    ),
    Experiment(
        "validation_free",
        "Few-shot classification without a validation set",
        "Table 2b",
        "few_shot",
        (
            ZERO,
            _named("prograd", "ProGrad"),
            _named("plot", "PLOT"),
            _named("task_res", "TaskRes"),
            _TIP,
            _named("cross_modal", "Cross-modal LP"),
            _named("clap", "CLAP"),
            _named(
                "prolip",
                "ProLIP, Adam",
                key="prolip_adam",
                options=_adam("1/N"),
                over=_OVER_LRS,
                paper="ProLIP",
            ),
            _named("prolip", "ProLIP, exact", options=_exact(), paper="ProLIP"),
            Row("prolip_auto", "ProLIP, lam from the support set", "prolip", _exact("auto")),
        ),
        published="validation_free",
    ),
    Experiment(
        "variants",
        "ProLIP without a validation set: lam as a function of N",
        "Table 2a and Table 11",
        "few_shot",
        _VARIANTS,
        published="variants",
        plot="variants",
    ),
    Experiment(
        "rla",
        "Regularized Linear Adapter against CLIP-Adapter",
        "Figure 5 and Table 19",
        "few_shot",
        (
            *(
                row
                for alpha in (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)
                for row in _each_lr("clip_adapter", f"CLIP-Adapter, alpha={alpha:g}", {"alpha": alpha})
            ),
            *_each_lr("rla", "RLA", _adam("1/N")),
            *_each_lr("prolip", "ProLIP", _adam("1/N")),
            Row("rla_exact", "RLA, exact", "rla", _exact(), paper="RLA"),
            Row("prolip_exact", "ProLIP, exact", "prolip", _exact(), paper="ProLIP"),
        ),
        published="rla",
        plot="variants",
    ),
    Experiment(
        "cross_dataset",
        "From 4-shot ImageNet to ten other datasets",
        "Table 3",
        "transfer",
        (ZERO, _named("coop", "CoOp"), _named("cocoop", "CoCoOp"), _named("prograd", "ProGrad"), *_FIXED),
        layout="targets",
        datasets=("imagenet",),
        targets=(
            "caltech101",
            "oxford_pets",
            "stanford_cars",
            "flowers102",
            "food101",
            "fgvc_aircraft",
            "sun397",
            "dtd",
            "eurosat",
            "ucf101",
        ),
        shots=(4,),
        published="cross_dataset",
        plot="bars",
    ),
    Experiment(
        "domain",
        "Domain generalization from 4-shot ImageNet",
        "Table 4",
        "transfer",
        (
            ZERO,
            _named("linear_probe", "LP"),
            _named("coop", "CoOp"),
            _named("cocoop", "CoCoOp"),
            _named("prograd", "ProGrad"),
            _named("task_res", "TaskRes"),
            _TIP,
            *_FIXED,
        ),
        layout="targets",
        models=("RN50", "RN101", "ViT-B/16", "ViT-B/32"),
        datasets=("imagenet",),
        targets=VARIANTS,
        shots=(4,),
        published="domain",
        plot="bars",
    ),
    Experiment(
        "base_to_new",
        "Base-to-new generalization",
        "Tables 5a, 12a and 17: RN50, 4 shots",
        "base_to_new",
        (ZERO, _named("coop", "CoOp"), _named("cocoop", "CoCoOp"), _named("prograd", "ProGrad"), *_FIXED),
        layout="base_to_new",
        shots=(4,),
        published="base_to_new_rn50",
        plot="base_to_new",
    ),
    Experiment(
        "base_to_new_vit",
        "Base-to-new generalization",
        "Tables 5b, 12b and 18: ViT-B/16, 16 shots",
        "base_to_new",
        (ZERO, _named("coop", "CoOp"), _named("cocoop", "CoCoOp"), _named("maple", "MaPLe"), *_FIXED),
        layout="base_to_new",
        models=("ViT-B/16",),
        shots=(16,),
        template="photo",
        published="base_to_new_vit",
        plot="base_to_new",
        note='Every dataset with "a photo of a {}.", as the authors\' README says of these figures.',
    ),
    Experiment(
        "full_tuning",
        "Full and last-layer fine-tuning",
        "Table 6",
        "few_shot",
        (
            ZERO,
            _named("full", "Full fine-tuning", options={"lr": 1e-5}),
            _named("last_layer", "Last layer, lr=1e-5", key="last_layer_lr1e-5", options={"lr": 1e-5}),
            _named("last_layer", "Last layer, lr=1e-4", key="last_layer_lr1e-4", options={"lr": 1e-4}),
            *(
                _named("prolip", f"ProLIP, lam={lam}", key=f"prolip_lam{lam}", options=_adam(lam, lr=1e-5))
                for lam in ("0", "1/N", "1/N^2")
            ),
        ),
        published="full_tuning",
    ),
    Experiment(
        "siglip",
        "ProLIP with SigLIP",
        "Table 7",
        "few_shot_validation",
        (
            _named("zero_shot", "Zero-shot", paper="SigLIP (0-shot)"),
            _named(
                "prolip", "ProLIP (grid search)", key="prolip_grid", options={"solver": "adam"}, grid=GRID
            ),
            *(
                _named(
                    "prolip",
                    f"ProLIP, lam={lam}",
                    key=f"lam{lam}",
                    options=_adam(lam),
                    over=_OVER_LRS[1:],
                    protocol="few_shot",
                )
                for lam in ("1/N", "1/N^2")
            ),
        ),
        models=("SigLIP ViT-B/16",),
        views=1,
        published="siglip",
        note="One view. The paper does not say which matrix it tunes; here it is the pooling head's fc2.",
    ),
    Experiment(
        "complementarity",
        "Complementarity to other methods",
        "Table 8",
        "few_shot",
        (ZERO, *_sums("exact", {"prolip.lam": "1/N"}, _exact()), *_sums("adam", {}, _adam("1/N", lr=1e-4))),
        published="complementarity",
        plot="gains",
        note="The paper's recipe is Adam's. The exact sum goes to its minimum where it has one.",
    ),
    Experiment(
        "test_time",
        "Test-time adaptation",
        "Table 9",
        "transfer",
        (
            ZERO,
            _named("zero_shot", "TPT", key="tpt", protocol="test_time_tpt"),
            _named("zero_shot", "ProLIP test-time", key="test_time", protocol="test_time_prolip"),
            _named("coop", "CoOp"),
            _named("prolip", "ProLIP", options=_exact()),
            _named(
                "prolip",
                "ProLIP test-time + ProLIP",
                key="test_time_prolip",
                options=_exact(),
                protocol="test_time_prolip",
            ),
        ),
        layout="targets",
        datasets=("imagenet",),
        targets=("imagenet_a", "imagenet_v2", "imagenet_r", "imagenet_sketch"),
        shots=(16,),
        seeds=(1,),
        published="test_time",
        plot="bars",
        note="64 views of every test image go through the tower in each run. CoOp and ProLIP have 16 shots.",
    ),
    Experiment(
        "text_projector",
        "Tuning the text projection",
        "Table 13",
        "few_shot",
        (
            ZERO,
            _named(
                "prolip_text",
                "ProLIP (text), Adam",
                key="prolip_text_adam",
                options=_adam("1/N"),
                over=_OVER_LRS,
                paper="ProLIP (text)",
            ),
            _named("prolip_text", "ProLIP (text), exact", options=_exact(), paper="ProLIP (text)"),
            _named("prolip", "ProLIP, exact", options=_exact(), paper="ProLIP"),
        ),
        published="text_projector",
    ),
    Experiment(
        "text_projector_lr",
        "Tuning the text projection, by learning rate",
        "Table 14",
        "few_shot",
        _each_lr("prolip_text", "ProLIP (text)", _adam("1/N"))[:-1],
        published="text_projector_lr",
    ),
    Experiment(
        "lora",
        "CLIP-LoRA, classification",
        "Table 15",
        "few_shot",
        (ZERO, _named("clip_lora", "CLIP-LoRA"), _named("prolip", "ProLIP", options=_exact())),
        models=("ViT-B/16",),
        template="photo",
        published="lora",
        columns={"average": "classification"},
        note="The paper gives the mean over 1 to 16 shots.",
    ),
    Experiment(
        "lora_base_to_new",
        "CLIP-LoRA, base-to-new",
        "Table 15",
        "base_to_new",
        (ZERO, _named("clip_lora", "CLIP-LoRA"), *_FIXED),
        layout="base_to_new",
        models=("ViT-B/16",),
        shots=(16,),
        template="photo",
        published="lora",
        columns={"H_t2": "base-to-new"},
        plot="base_to_new",
    ),
    Experiment(
        "normalisation",
        "Tuning normalisation parameters",
        "Table 16",
        "few_shot",
        (
            Row("norm_tuning", "BatchNorm or LayerNorm", "norm_tuning", paper="{model} {norm}"),
            Row("prolip", "ProLIP, exact", "prolip", _exact(), paper="{model} ProLIP"),
        ),
        models=("RN50", "ViT-B/16"),
        shots=(16,),
        published="normalisation",
        plot="bars",
    ),
    Experiment(
        "views",
        "Number of augmented views",
        "Figure 7",
        "few_shot",
        tuple(
            Row(f"views{n}", f"{n} view{'s' if n > 1 else ''}", "prolip", _exact(), views=n)
            for n in (1, 2, 5, 10, 20, 50, 100, 300)
        ),
        plot="views",
        note="The first view is the centre crop. Views beyond --views are left out.",
    ),
    Experiment(
        "umap",
        "The test set's features before and after 16 shots",
        "Figure 8",
        "manifold",
        (Row("prolip", "ProLIP, exact", "prolip", _exact()),),
        layout="manifold",
        datasets=("eurosat",),
        shots=(16,),
        seeds=(1,),
        plot="manifold",
    ),
    Experiment(
        "more_shots",
        "32 shots and all the data",
        'supplement, "More few-shot settings"',
        "few_shot",
        (ZERO, _named("task_res", "TaskRes"), _named("prolip", "ProLIP", options=_exact())),
        shots=(32, None),
        published="more_shots",
    ),
    Experiment(
        "temperature",
        "Effect of the temperature",
        "Table 20",
        "few_shot",
        tuple(
            Row(
                f"temp{factor:g}",
                f"{factor:g} x the model's scale",
                "prolip",
                _adam("1/N", lr=1e-4),
                paper=f"temp={100 * factor:g}",
                scale=factor,
            )
            for factor in (0.5, 1.0, 1.5)
        ),
        published="temperature",
    ),
    Experiment(
        "templates",
        "Each dataset's own template against one for all",
        "Table 21",
        "few_shot",
        (
            ZERO,
            Row("zero_shot_photo", 'Zero-shot, "a photo of a {}."', "zero_shot", template="photo"),
            Row("prolip", "ProLIP, exact", "prolip", _exact()),
            Row("prolip_photo", 'ProLIP, exact, "a photo of a {}."', "prolip", _exact(), template="photo"),
        ),
        layout="datasets",
        note="The paper lists the templates; what they are worth is measured here.",
    ),
    Experiment(
        "parameters",
        "Trained parameters",
        'Table 22 and the "# params" columns',
        "parameters",
        (),
        layout="parameters",
        models=("RN50", "RN101", "ViT-B/32", "ViT-B/16"),
        published="parameters",
        note="Counted from shapes; nothing is run.",
    ),
)

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}


def experiment(name: str) -> Experiment:
    """An experiment by name."""
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]
