"""README.md of an adapted model: what it knows, how well, what it came from, how to load it.

Names of classes and folders are anyone's: they stand in the card as code, where nothing in them is markup.
"""

import re
from collections.abc import Collection
from typing import Any

from prolip.export.usage import programs
from prolip.io.files import readable


def model_card(config: dict[str, Any], files: Collection[str], name: str) -> str:
    """The card in Markdown, of what a saved model says about itself.

    It tells how to load the files that lie beside it in the folder of this name, and nothing else.
    """
    parts = [
        _front_matter(config, files),
        f"# {_plain(name)}",
        _summary(config),
        _classes(config),
        _results(config),
        _confidence(config),
        "\n\n".join(["## How to use it", *programs(config, files)]),
        _origin(config),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _front_matter(config: dict[str, Any], files: Collection[str]) -> str:
    """What model hubs read; only what is known."""
    libraries = {"config.json": "transformers", "open_clip_config.json": "open_clip"}
    library = next((name for file, name in libraries.items() if file in files), "prolip")
    lines = [f"library_name: {library}", "pipeline_tag: zero-shot-image-classification"]
    if known := re.fullmatch(r"hf:(\w[\w.-]*/[\w.-]+)", str(config["model"]), re.ASCII):
        lines.append(f"base_model: {known[1]}")
    lines.append("tags: [prolip, few-shot, image-classification]")
    return "\n".join(["---", *lines, "---"])


def _summary(config: dict[str, Any]) -> str:
    fit = config["fit"]
    text = (
        f"A classifier of {len(config['classes'])} kinds of images. It was made from the model "
        f"{_code(config['model'])} and {fit['images']} labelled images ({fit['shots']:.3g} of each class) "
        f"with [prolip](https://arxiv.org/abs/2410.05270), by the method {_code(config['method'])}"
    )
    if isinstance(config.get("lam"), (int, float)):
        text += f" (lam = {config['lam']:.3g})"
    folds = config.get("kind") in ("projected", "anchored", "text_projected")
    return text + ". The towers of the model are unchanged." if folds else text + "."


def _classes(config: dict[str, Any]) -> str:
    names = ", ".join(map(_code, config["classes"]))
    text = f"## Classes\n\n{names}"
    if config.get("templates"):
        prompts = ", ".join(map(_code, config["templates"]))
        text += f"\n\nThe model reads a class as {prompts}, with its name for `{{}}`"
        text += " (underscores are spaces)"
        text += "; the embeddings of these are averaged." if len(config["templates"]) > 1 else "."
    if config.get("recipe", {}).get("descriptions"):
        text += (
            "\n\nDescriptions of the classes count as well, each by how well it fits the images. Their "
            "weighted means are in prolip's own model and in `classifier.onnx`; a program that reads names "
            "through a template leaves them out."
        )
    return text


def _results(config: dict[str, Any]) -> str:
    """Figures: on test images where they were given, otherwise on held-out images of the support set."""
    measured, where = config.get("evaluation"), "on test images that were not used in the fit"
    if measured and measured.get("duplicates"):
        where = f"on images of which {measured['duplicates']} were used in the fit, so that it looks too good"
    if not measured:
        measured, where = config.get("held_out") or {}, "by cross-validation inside the labelled images"
    if not measured.get("images"):
        return (
            "## How good it is\n\nNot measured: with one image of each class there is none to test on. "
            "Run `prolip eval` on images of your own."
        )
    lines = [
        "## How good it is",
        "",
        f"Measured {where}, {measured['images']} of them.",
        "",
        "| | accuracy |",
        "| --- | ---: |",
        f"| before (zero-shot) | {_percent(measured['zero_shot_accuracy'])} |",
        f"| this model | **{_percent(measured['accuracy'])}** |",
        "",
        "| class | accuracy |",
        "| --- | ---: |",
    ]
    pairs = zip(config["classes"], measured["per_class"], strict=False)
    lines += [
        f"| {_plain(name, table=True)} | {_percent(value)} |" for name, value in pairs if value is not None
    ]
    return "\n".join(lines)


def _confidence(config: dict[str, Any]) -> str:
    measured = config.get("evaluation") or config.get("held_out") or {}
    floor = measured.get("calibration_error_floor")
    sentences = [
        f"They were calibrated on the labelled images by one temperature, {config['temperature']:.3g}, "
        "which changes no answer."
    ]
    if "calibration_error" in measured:
        sentences.append(
            f"Expected calibration error: {_percent(measured['calibration_error_before'])} before, "
            f"{_percent(measured['calibration_error'])} after (0 means that of the answers given with 80 % "
            "confidence, 80 % are right"
            + (f"; on that many images, chance alone shows {_percent(floor)})." if floor else ").")
        )
    sentences.append(
        "It answers with one of its classes whatever the image shows. `prolip predict --reject` refuses "
        "images that are unlike all of the labelled ones; a plain softmax does not."
    )
    return "## What its probabilities mean\n\n" + " ".join(sentences)


def _origin(config: dict[str, Any]) -> str:
    rows = {
        "base model": _code(config["model"], table=True),
        "revision": config.get("revision"),
        "weights": _code(config["fingerprint"], table=True) if config.get("fingerprint") else None,
        "licence": config.get("licence") or "that of the base model; look it up there",
        "made with": f"prolip {config['prolip']}",
    }
    lines = [f"| {key} | {value} |" for key, value in rows.items() if value]
    return "\n".join(["## Where it comes from", "", "| | |", "| --- | --- |", *lines])


def _plain(name: Any, table: bool = False) -> str:
    """A name as it is, where that means nothing else in Markdown; otherwise as code."""
    return str(name) if re.fullmatch(r"[^\W_](?:[\w ,'-]*[^\W_])?", str(name)) else _code(name, table)


def _code(name: Any, table: bool = False) -> str:
    """A name between backticks, more of them than it holds itself; control characters as escapes."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in readable(str(name)))
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if len(fence) > 1 or text != text.strip() else ""
    found = f"{fence}{space}{text}{space}{fence}"
    return found.replace("|", "\\|") if table else found


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
