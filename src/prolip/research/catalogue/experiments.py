"""The experiments: the paper's main text, its supplement, and what others published."""

from dataclasses import replace
from itertools import product

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
from prolip.research.datasets import VARIANTS

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


_ALL = (
    Experiment(
        "few_shot_validation", "Few-shot classification with few-shot validation", "Table 1",
        "few_shot",
        VALIDATED, validation="shots",
        published="few_shot_validation",
        note="The paper chooses hyperparameters on as many validation shots as there are training shots.",
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
            named("task_res", "TaskRes", options={"solver": "sgd"}, **CLAP_PROGRAM), TASK_RES[1],
            named("clap_tip_adapter_f", "Tip-Adapter-F", **CLAP_PROGRAM),
            Entry("tip_adapter_f", "Tip-Adapter-F, its authors' steps", "tip_adapter_f"),
            named("clap_cross_modal", "Cross-modal LP", **CLAP_PROGRAM),
            Entry("cross_modal", "Cross-modal LP, exact", "cross_modal"),
            named("clap", "CLAP", options={"solver": "sgd"}, **CLAP_PROGRAM),
            Entry("clap_exact", "CLAP, exact", "clap", {"solver": "exact"}),
            PROLIP, EXACT,
            ANCHORED,
        ),
        published="validation_free",
    ),
    Experiment(
        "variants", "ProLIP without a validation set: lam as a function of N", "Table 2a and Table 11",
        "few_shot",
        _VARIANTS,
        published="variants", deviation="learning rates",
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
            Entry("rla_exact", "RLA, exact", "rla", exact()),
            Entry("prolip_exact", "ProLIP, exact", "prolip", exact()),
            ANCHORED,
        ),
        published="rla", deviation="learning rates",
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
                entry
                for label, start in (
                    ("ProLIP", FIXED[0]), ("Tip-Adapter-F", TIP),
                    ("TaskRes", replace(TASK_RES[0], by_dataset={}, options={"solver": "adam", "lr": 2e-4})),
                )
                for entry in (
                    replace(start, label=label, published_row=None),
                    replace(
                        start, key=f"{start.key}_1e-2", label=f"{label}, lr=1e-2", published_row=label,
                        gain_over=start.key, options={**start.options, "lr": 1e-2},
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
        (
            _ZERO_COOP, COOP_PHRASE, COCOOP,
            replace(_MAPLE[2], label="MaPLe", published_row="MaPLe"), *FIXED, ANCHORED,
        ),
        layout="base_to_new", models=("ViT-B/16",), shots=(16,), template="photo",
        published="base_to_new_vit", published_per_dataset="base_to_new_per_dataset_vit", plot="bars",
        note='ProLIP has "a photo of a {}." for every dataset, as the authors\' README says of the figures.',
    ),
    Experiment(
        "base_to_new_all", "Base-to-new generalization among all classes", "not in the paper",
        "base_to_new_all", (ZERO, *FIXED, ANCHORED),
        layout="base_to_new", models=("ViT-B/16",), shots=(1, 4, 16), template="photo", plot="bars",
        note="A fit has the names of all classes, and images of the base classes alone.",
    ),
    Experiment(
        "full_tuning", "Full and last-layer fine-tuning", "Table 6", "few_shot",
        (
            ZERO, named("full", "Full fine-tuning", options={"lr": 1e-5}, by_dataset=_IMAGENET_BATCH),
            *(
                named(
                    "last_layer", f"Last layer, lr={lr}", key=f"last_layer_lr{lr}",
                    options={"lr": float(lr)}, by_dataset=_IMAGENET_BATCH,
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
        published="full_tuning",
        note="The regularised form is that of Gouk et al., which section 4 calls less effective.",
    ),
    Experiment(
        "siglip", "ProLIP with SigLIP", "Table 7", "few_shot",
        (
            named("zero_shot", "Zero-shot", published_row="SigLIP (0-shot)"),
            named(
                "prolip", "ProLIP (grid search)", key="prolip_grid", options={"solver": "adam"},
                grid=AUTHORS_GRID,
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
        models=("SigLIP ViT-B/16",), views=1, validation="shots", published="siglip",
        deviation="learning rates",
        note="One view. The paper does not say which matrix it tunes; here it is the pooling head's fc2.",
    ),
    Experiment(
        "complementarity", "Complementarity to other methods", "Table 8", "few_shot",
        (
            ZERO, *sums("exact", {}, exact()), *sums("adam", {}, adam("1/N", lr=1e-4)),
            *sums("adam", {"lr": 1e-2}, adam("1/N", lr=1e-2), suffix="_1e-2"),
            replace(ANCHORED, gain_over="prolip"),
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
                _COOP_4, key="tpt_coop", label="TPT + CoOp", published_row="TPT + CoOp",
                protocol="test_time_tpt",
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
    Experiment(
        "per_dataset", "Few-shot validation, each dataset", "Tables 23 and 24", "few_shot",
        VALIDATED,
        validation="shots", layout="datasets", published="per_dataset",
        note="The runs of few_shot_validation, shown for each dataset.",
    ),
    Experiment(
        "grid_search", "What the grid search chooses", "Figure 6", "few_shot",
        (GRID_SEARCH,),
        validation="shots", layout="chosen", plot="heat_map",
        note="The ProLIP runs of few_shot_validation: how often each learning rate and lam was the best.",
    ),
    Experiment(
        "text_projector", "Tuning the text projection", "Table 13", "few_shot",
        (
            ZERO,
            named(
                "prolip_text", "ProLIP (text), Adam", key="prolip_text_adam",
                options=adam("1/N", per_template=False), averaged_over=OVER_LRS,
                published_row="ProLIP (text)",
            ),
            Entry("prolip_text", "ProLIP (text), exact", "prolip_text", exact()),
            PROLIP, EXACT, ANCHORED,
        ),
        published="text_projector",
    ),
    Experiment(
        "text_projector_lr", "Tuning the text projection, by learning rate", "Table 14", "few_shot",
        (*each_lr("prolip_text", "ProLIP (text)", adam("1/N", per_template=False))[:-1], ANCHORED),
        published="text_projector_lr",
    ),
    Experiment(
        "lora", "CLIP-LoRA, classification", "Table 15", "few_shot",
        (ZERO, named("clip_lora", "CLIP-LoRA"), *FIXED, ANCHORED),
        models=("ViT-B/16",), template="photo", published="lora", columns={"average": "classification"},
        note="The paper gives the mean over 1 to 16 shots, at one learning rate, which it does not state.",
    ),
    Experiment(
        "lora_base_to_new", "CLIP-LoRA, base-to-new", "Table 15", "base_to_new",
        (ZERO, named("clip_lora", "CLIP-LoRA"), *FIXED, ANCHORED),
        layout="base_to_new", models=("ViT-B/16",), shots=(16,), template="photo",
        published="lora_base_to_new", columns={"H_t2": "base-to-new"}, plot="bars",
    ),
    Experiment(
        "normalisation", "Tuning normalisation parameters", "Table 16", "few_shot",
        (
            Entry("norm_tuning", "BatchNorm or LayerNorm", "norm_tuning", published_row="{model} {norm}"),
            replace(PROLIP, published_row="{model} ProLIP"), EXACT, ANCHORED,
        ),
        models=("RN50", "ViT-B/16"), shots=(16,), published="normalisation", plot="bars",
    ),
    Experiment(
        "bias", "Tuning the bias of the projection too", 'supplement: it "does not change the results"',
        "few_shot",
        (
            PROLIP, EXACT,
            Entry("prolip_bias_adam", "ProLIP with the bias, Adam", "prolip_bias", adam("1/N"),
                  averaged_over=OVER_LRS),
            Entry("prolip_bias", "ProLIP with the bias, exact", "prolip_bias", exact()), ANCHORED,
        ),
    ),
    Experiment(
        "views", "Number of augmented views", "Figure 7", "few_shot",
        (
            *(
                Entry(f"views{n}{end}", f"{n} view{'s' if n > 1 else ''}, {how}", "prolip", options, views=n)
                for end, how, options in (("_adam", "Adam", adam("1/N", lr=1e-4)), ("", "exact", exact()))
                for n in (1, 2, 5, 10, 20, 50, 100, 300)
            ),
            ANCHORED,
        ),
        note="Adam has one view an epoch, as in the paper, which does not state the learning rate. The first "
        "view is the centre crop. Views beyond --views are left out.",
    ),
    Experiment(
        "umap", "The test set's features before and after 16 shots", "Figure 8", "manifold",
        (EXACT,),
        layout="manifold", datasets=("eurosat",), shots=(16,), seeds=(1,), plot="scatter",
    ),
    Experiment(
        "more_shots", "32 shots and all the data", 'supplement, "More few-shot settings"', "few_shot",
        (ZERO, *TASK_RES, PROLIP, EXACT, ANCHORED),
        shots=(32, None), published="more_shots",
    ),
    Experiment(
        "temperature", "Effect of the temperature", "Table 20", "few_shot",
        (
            *(
                Entry(
                    f"temp{factor:g}", f"{factor:g} x the model's scale", "prolip", adam("1/N", lr=1e-4),
                    published_row=f"temp={100 * factor:g}", scale=factor,
                )
                for factor in (0.5, 1.0, 1.5)
            ),
            ANCHORED,
        ),
        published="temperature",
    ),
    Experiment(
        "templates", "Each dataset's own template against one for all", "Table 21", "few_shot",
        tuple(
            entry
            for own in (ZERO, EXACT, ANCHORED)
            for entry in (
                own,
                replace(
                    own, key=f"{own.key}_photo", label=f'{own.label}, "a photo of a {{}}."',
                    published_row=None, template="photo",
                ),
            )
        ),
        layout="datasets", note="The paper lists the templates; what they are worth is measured here.",
    ),
    Experiment(
        "timing", "Seconds of a fit", 'the paper: "2 seconds on saved pre-projected features"', "timing",
        (
            Entry("prolip_adam", "ProLIP, Adam", "prolip", adam("1/N", lr=1e-4)), EXACT,
            Entry("task_res", "TaskRes", "task_res", {"solver": "adam"}),
            Entry("clap", "CLAP", "clap", {"solver": "sgd"}), replace(TIP, published_row=None),
            Entry("lp_plus_plus", "LP++", "lp_plus_plus"), replace(ANCHORED, validation=None),
        ),
        layout="seconds", shots=(16,), seeds=(1,), plot="bars",
        note="Of the fit alone, on cached features: the fastest of three on this machine. Only ratios can be "
        "compared with other machines. Run it with --jobs 1.",
    ),
    Experiment(
        "timing_test_time", "Seconds of a step at test time", 'the paper: "13 times faster than TPT"',
        "timing_prolip",
        (
            Entry("test_time", "ProLIP test-time", "zero_shot"),
            Entry("tpt", "TPT", "zero_shot", protocol="timing_tpt"),
        ),
        layout="seconds", datasets=("imagenet",), shots=(1,), seeds=(1,), plot="bars",
        note="For each image, after its 64 views went through the tower: the mean over 16 test images.",
    ),
    Experiment(
        "parameters", "Trained parameters", 'Table 22 and the "# params" columns', "parameters",
        (),
        layout="parameters", models=("RN50", "RN101", "ViT-B/32", "ViT-B/16"), published="parameters",
        note="Counted from shapes; nothing is run.",
    ),
)
# fmt: on

for _experiment in _ALL:
    register_experiment(_experiment)
