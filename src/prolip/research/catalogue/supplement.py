"""The tables and figures of the paper's supplement."""

from dataclasses import replace

from prolip.research.catalogue.experiment import Experiment, Line
from prolip.research.catalogue.lines import (
    EXACT,
    FIXED,
    OVER_LRS,
    PROLIP,
    TASK_RES,
    VALIDATED,
    VALIDATED_ADAM,
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
        (VALIDATED_ADAM,),
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
            PROLIP, EXACT,
        ),
        published="text_projector",
    ),
    Experiment(
        "text_projector_lr", "Tuning the text projection, by learning rate", "Table 14", "few_shot",
        each_lr("prolip_text", "ProLIP (text)", adam("1/N", per_template=False))[:-1],
        published="text_projector_lr",
    ),
    Experiment(
        "lora", "CLIP-LoRA, classification", "Table 15", "few_shot",
        (ZERO, named("clip_lora", "CLIP-LoRA"), PROLIP, EXACT),
        models=("ViT-B/16",), template="photo", published="lora", columns={"average": "classification"},
        note="The paper gives the mean over 1 to 16 shots.",
    ),
    Experiment(
        "lora_base_to_new", "CLIP-LoRA, base-to-new", "Table 15", "base_to_new",
        (ZERO, named("clip_lora", "CLIP-LoRA"), *FIXED),
        layout="base_to_new", models=("ViT-B/16",), shots=(16,), template="photo",
        published="lora_base_to_new", columns={"H_t2": "base-to-new"}, plot="bars",
    ),
    Experiment(
        "normalisation", "Tuning normalisation parameters", "Table 16", "few_shot",
        (
            Line("norm_tuning", "BatchNorm or LayerNorm", "norm_tuning", paper="{model} {norm}"),
            replace(PROLIP, paper="{model} ProLIP"), EXACT,
        ),
        models=("RN50", "ViT-B/16"), shots=(16,), published="normalisation", plot="bars",
    ),
    Experiment(
        "views", "Number of augmented views", "Figure 7", "few_shot",
        tuple(
            Line(f"views{n}", f"{n} view{'s' if n > 1 else ''}", "prolip", exact(), views=n)
            for n in (1, 2, 5, 10, 20, 50, 100, 300)
        ),
        note="The first view is the centre crop. Views beyond --views are left out.",
    ),
    Experiment(
        "umap", "The test set's features before and after 16 shots", "Figure 8", "manifold",
        (Line("prolip", "ProLIP, exact", "prolip", exact()),),
        layout="manifold", datasets=("eurosat",), shots=(16,), seeds=(1,), plot="scatter",
    ),
    Experiment(
        "more_shots", "32 shots and all the data", 'supplement, "More few-shot settings"', "few_shot",
        (ZERO, *TASK_RES, PROLIP, EXACT),
        shots=(32, None), published="more_shots",
    ),
    Experiment(
        "temperature", "Effect of the temperature", "Table 20", "few_shot",
        tuple(
            Line(
                f"temp{factor:g}",
                f"{factor:g} x the model's scale",
                "prolip",
                adam("1/N", lr=1e-4),
                paper=f"temp={100 * factor:g}",
                scale=factor,
            )
            for factor in (0.5, 1.0, 1.5)
        ),
        published="temperature",
    ),
    Experiment(
        "templates", "Each dataset's own template against one for all", "Table 21", "few_shot",
        (
            ZERO, Line("zero_shot_photo", 'Zero-shot, "a photo of a {}."', "zero_shot", template="photo"),
            Line("prolip", "ProLIP, exact", "prolip", exact()),
            Line("prolip_photo", 'ProLIP, exact, "a photo of a {}."', "prolip", exact(), template="photo"),
        ),
        layout="datasets", note="The paper lists the templates; what they are worth is measured here.",
    ),
    Experiment(
        "newer", "Newer methods in closed form", "figures of several repositories", "few_shot",
        (
            replace(ZERO, paper=None), Line("gda", "GDA", "gda", paper="{model} GDA"),
            Line("proker", "ProKeR", "proker", paper="{model} ProKeR"),
            Line("lp_plus_plus", "LP++", "lp_plus_plus", paper="{model} LP++"),
            replace(PROLIP, validation="none", paper=None), replace(EXACT, validation="none"),
        ),
        validation="shots", models=("RN50", "ViT-B/16"), published="newer",
        note="GDA and ProKeR chose on the whole validation split (GDA on ImageNet: on the test set); "
        "here on N validation shots.",
    ),
    Experiment(
        "parameters", "Trained parameters", 'Table 22 and the "# params" columns', "parameters",
        (),
        layout="parameters", models=("RN50", "RN101", "ViT-B/32", "ViT-B/16"), published="parameters",
        note="Counted from shapes; nothing is run.",
    ),
)
# fmt: on
