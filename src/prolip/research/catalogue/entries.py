"""Lines that several experiments share, and functions that create lines.

The paper trains with Adam. Where it reports a mean over learning rates, the exact solver, which has none,
computes the minimum that those runs approach. A line with a published figure runs the program behind that
figure; lines called "exact" are ours, and have none.
"""

import math
from itertools import product
from typing import Any

from prolip.data import templates_for
from prolip.research.catalogue.experiment import Entry, Options
from prolip.research.datasets import ELEVEN

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


def sums(solver: str, options: Options, alone: Options, suffix: str = "") -> tuple[Entry, ...]:
    """Create entries of ProLIP alone, and with each of the others, by one solver.

    With a `suffix` they are at another rate than the paper's table, and have no published row.
    """
    steps = solver == "adam"
    end, how = (f"_adam{suffix}", f"Adam{suffix.replace('_', ', lr=')}") if steps else ("", "exact")
    published = steps and not suffix
    row = "ProLIP" if published else None
    base = Entry(f"prolip{end}", f"ProLIP, {how}", "prolip", alone, published_row=row)
    options = {**options, "solver": "adam"} if steps else options
    entries = [base]
    for name, label in (("rla", "RLA"), ("tip_adapter_f", "Tip-Adapter-F"), ("task_res", "TaskRes")):
        key, label = f"prolip+{name}", f"ProLIP + {label}"
        row = label if published else None
        entries.append(
            Entry(f"{key}{end}", f"{label}, {how}", key, options, published_row=row, gain_over=base.key)
        )
    return tuple(entries)


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
    named("linear_probe", "LP", validated={"C": "grid"}),
    named("lp_plus_plus", "LP++"),
    GRID_SEARCH,
    Entry("prolip", "ProLIP, exact", "prolip", {"solver": "exact"}, grid=GRID_EXACT),
    ANCHORED,
)

# Domain generalization, cross-dataset and base-to-new: the paper's fixed setting, and the minimum.
FIXED = (Entry("prolip_adam", "ProLIP, Adam", "prolip", adam("1/N", lr=1e-5), published_row="ProLIP"), EXACT)
