"""The tables and figures of the paper's supplement."""

from dataclasses import replace

from prolip.research.catalogue.experiment import Experiment, Line
from prolip.research.catalogue.lines import (
    ANCHORED,
    EXACT,
    FIXED,
    GRID_SEARCH,
    NEWER,
    OVER_LRS,
    PROLIP,
    TASK_RES,
    TIP,
    VALIDATED,
    ZERO,
    adam,
    each_lr,
    exact,
    named,
)

# fmt: off
SUPPLEMENT = (
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
                options=adam("1/N", per_template=False), over=OVER_LRS, paper="ProLIP (text)",
            ),
            Line("prolip_text", "ProLIP (text), exact", "prolip_text", exact()),
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
            Line("norm_tuning", "BatchNorm or LayerNorm", "norm_tuning", paper="{model} {norm}"),
            replace(PROLIP, paper="{model} ProLIP"), EXACT, ANCHORED,
        ),
        models=("RN50", "ViT-B/16"), shots=(16,), published="normalisation", plot="bars",
    ),
    Experiment(
        "views", "Number of augmented views", "Figure 7", "few_shot",
        (
            *(
                Line(f"views{n}{end}", f"{n} view{'s' if n > 1 else ''}, {how}", "prolip", options, views=n)
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
                Line(
                    f"temp{factor:g}", f"{factor:g} x the model's scale", "prolip", adam("1/N", lr=1e-4),
                    paper=f"temp={100 * factor:g}", scale=factor,
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
            line
            for own in (ZERO, EXACT, ANCHORED)
            for line in (
                own,
                replace(
                    own, key=f"{own.key}_photo", label=f'{own.label}, "a photo of a {{}}."', paper=None,
                    template="photo",
                ),
            )
        ),
        layout="datasets", note="The paper lists the templates; what they are worth is measured here.",
    ),
    Experiment(
        "newer", "Methods with little or no training", "figures of several repositories", "few_shot",
        (
            replace(ZERO, paper=None), *NEWER,
            replace(PROLIP, validation="none", paper=None), replace(EXACT, validation="none"), ANCHORED,
        ),
        validation="split", models=("RN50", "ViT-B/16"), published="newer",
        note="Options are chosen on the whole validation split, as by most of the authors; on ImageNet on N "
        "shots of the training images (theirs: on the test set). --validation chooses on other images.",
    ),
    Experiment(
        "transductive", "All test images classified together", "StatA's repository", "transductive",
        (
            Line("zero_shot", "Zero-shot", "zero_shot", protocol="few_shot", paper="CLIP (0-shot)"),
            named("zero_shot", "TransCLIP", key="transclip", protocol="transductive_transclip"),
            named("zero_shot", "StatA", key="stata", protocol="transductive_stata"),
            Line("joint", "Clusters of test images (ours)", "zero_shot"),
            replace(EXACT, protocol="few_shot"),
            Line("prolip_joint", "ProLIP, exact, test images together (ours)", "prolip", exact()),
            replace(ANCHORED, protocol="few_shot"),
            Line("anchored_joint", "Anchored regression, test images together (ours)", "anchored"),
        ),
        models=("ViT-B/16",), template="photo", published="transductive",
    ),
    Experiment(
        "few_classes", "Batches of 64 test images of 1 to 4 classes", "StatA's repository", "few_classes",
        (
            Line("zero_shot", "Zero-shot", "zero_shot", protocol="few_shot", paper="CLIP (0-shot)"),
            named("zero_shot", "TransCLIP", key="transclip", protocol="few_classes_transclip"),
            named("zero_shot", "StatA", key="stata", protocol="few_classes_stata"),
            Line("joint", "Clusters of test images (ours)", "zero_shot"),
        ),
        models=("ViT-B/16",), template="photo", shots=(1,), published="few_classes",
        note="The mean over 100 batches; other classes stay possible in all of them.",
    ),
    Experiment(
        "timing", "Seconds of a fit", 'the paper: "2 seconds on saved pre-projected features"', "timing",
        (
            Line("prolip_adam", "ProLIP, Adam", "prolip", adam("1/N", lr=1e-4)), EXACT,
            Line("task_res", "TaskRes", "task_res", {"solver": "adam"}),
            Line("clap", "CLAP", "clap", {"solver": "sgd"}), replace(TIP, paper=None),
            Line("lp_plus_plus", "LP++", "lp_plus_plus"), replace(ANCHORED, validation=None),
        ),
        layout="seconds", shots=(16,), seeds=(1,), plot="bars",
        note="Of the fit alone, on cached features: the fastest of three on this machine. Only ratios can be "
        "compared with other machines. Run it with --jobs 1.",
    ),
    Experiment(
        "timing_test_time", "Seconds of a step at test time", 'the paper: "13 times faster than TPT"',
        "timing_prolip",
        (
            Line("test_time", "ProLIP test-time", "zero_shot"),
            Line("tpt", "TPT", "zero_shot", protocol="timing_tpt"),
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
