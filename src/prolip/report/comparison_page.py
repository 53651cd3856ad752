"""The report on a comparison of methods and models: a chart, tables, and which one to use."""

from prolip.evaluate.comparison import CandidateScore, Comparison, ModelFacts
from prolip.report.html import table, tag
from prolip.report.page import chart, page, section

COLUMNS = (
    "model",
    "method",
    "accuracy %",
    "95 % interval",
    "difference",
    "fit s",
    "open-class",
    "calibration error %",
    "exports",
)

NOTE = (
    "Each image was predicted once, by fits that had not seen it: the default as `prolip fit` reports it, "
    "the others by nested cross-validation, with their hyperparameters chosen inside each fold. Bars are "
    "95 % intervals of the accuracy on other images like these; compare two methods by their difference on "
    "these."
)
MODEL_COLUMNS = ("model", "images/s", "download", "memory", "licence")
MODELS_NOTE = (
    "`images/s` and `memory` were measured on this machine: the speed of the image tower, and the memory "
    "that loading it and encoding images takes."
)
COLUMNS_NOTE = (
    "`difference` is to the default, ± its standard error; `fit s` seconds of one fit; `open-class` whether "
    "other classes can be added; `exports` what `prolip export --to` takes."
)


def comparison_page(comparison: Comparison, *, title: str, source: str) -> str:
    """Make the HTML of a report on a comparison; `source` is the name of the images."""
    per_class = f"{comparison.shots:.3g} per class"
    lead = f"{comparison.images} images of {source}, {comparison.classes} classes, {per_class}."
    chosen, why = comparison.chosen, comparison.why
    intervals = [
        {
            "name": comparison.title(each),
            "accuracy": each.accuracy,
            "low": each.low,
            "high": each.high,
            "chosen": each is chosen,
        }
        for each in comparison.scores
    ]
    several = len(comparison.models) > 1
    first = 0 if several else 1  # the column of the model
    rows = [
        [tag("b", cell) if each is chosen else cell for cell in table_row(each)[first:]]
        for each in comparison.scores
    ]
    sections = [
        section(
            f"Use {comparison.title(chosen)}" if comparison.decided else "Too few images to tell",
            tag("p", f"{why[:1].upper()}{why[1:]}."),
            chart("intervalChart", intervals),
            note=NOTE,
        ),
        section("Figures", table(list(COLUMNS[first:]), rows), note=COLUMNS_NOTE),
    ]
    if several:
        facts = [model_row(each) for each in comparison.models]
        sections.append(section("Models", table(list(MODEL_COLUMNS), facts), note=MODELS_NOTE))
    if comparison.left_out:
        reasons = [tag("li", f"{name}: {reason}") for name, reason in comparison.left_out.items()]
        sections.append(section("Not fitted", tag("ul", *reasons)))
    return page(title, lead, sections)


def table_row(each: CandidateScore) -> list[str]:
    """Format a method's figures for the columns of a table."""
    return [
        each.model,
        str(each.candidate),
        f"{100 * each.accuracy:.1f}",
        f"{100 * each.low:.1f} to {100 * each.high:.1f}",
        f"{100 * each.gap:+.1f} ± {100 * each.error:.1f}",
        f"{each.seconds:.2f}",
        "yes" if each.open_class else "no",
        f"{100 * each.calibration_error:.1f}",
        ", ".join(each.exports) or "-",
    ]


def model_row(each: ModelFacts) -> list[str]:
    """Format what a model takes for the columns of a table."""
    download = {None: "-", 0: "installed"}.get(each.download, f"{each.download} MB")
    return [
        each.name,
        "-" if each.images_per_second is None else f"{each.images_per_second:.0f}",
        download,
        "-" if each.memory is None else f"{each.memory} MB",
        (each.licence or "-").partition(" (")[0],
    ]
