"""The model card (README.md) of an adapted model: classes, accuracy, origin, how to load it.

Names of classes and folders may contain anything: they are written as code, where nothing in them is markup.
"""

import json
import re
from collections.abc import Collection
from pathlib import Path
from string import Template
from typing import Any

from prolip.io.files import readable


def model_card(config: dict[str, Any], files: Collection[str], name: str) -> str:
    """Return the card in Markdown, from the configuration of a saved model.

    It shows how to load the files of the folder of this name.
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
    """Return the metadata that model hubs read."""
    libraries = {"config.json": "transformers", "open_clip_config.json": "open_clip"}
    library = next((name for file, name in libraries.items() if file in files), "prolip")
    lines = [f"library_name: {library}", "pipeline_tag: zero-shot-image-classification"]
    if known := re.fullmatch(r"hf:(\w[\w.-]*/[\w.-]+)", str(config["model"]), re.ASCII):
        lines.append(f"base_model: {known[1]}")
    lines.append("tags: [prolip, few-shot, image-classification]")
    return "\n".join(["---", *lines, "---"])


def _summary(config: dict[str, Any]) -> str:
    fit = config["fit"]
    if not fit["images"]:
        return (
            f"A zero-shot image classifier with {len(config['classes'])} classes: it compares features of "
            f"{_code(config['model'])} with the class names, and was fitted to no labelled image."
        )
    text = (
        f"An image classifier with {len(config['classes'])} classes. It was fitted to {fit['images']} "
        f"labelled images ({fit['shots']:.3g} of each class) on features of {_code(config['model'])} "
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
        text += f"\n\nThe prompt of a class is {prompts}, with its name for `{{}}`"
        text += " (underscores are spaces)"
        text += "; their embeddings are averaged." if len(config["templates"]) > 1 else "."
    if config.get("recipe", {}).get("descriptions"):
        text += (
            "\n\nDescriptions of the classes are used, too, weighted by how well they fit the images. Their "
            "weighted means are in prolip's own model and in `classifier.onnx`; a program that makes prompts "
            "from a template does not use them."
        )
    return text


def _results(config: dict[str, Any]) -> str:
    """Return figures on test images, if given, otherwise on held-out images of the support set."""
    measured, where = config.get("evaluation"), "on test images that were not used in the fit"
    if measured and measured.get("duplicates"):
        where = f"on images of which {measured['duplicates']} were used in the fit, so that it is optimistic"
    if not measured:
        measured, where = config.get("held_out") or {}, "by cross-validation on the labelled images"
    if not measured.get("images"):
        why = (
            "with one image of each class none is left to test on" if config["fit"]["images"] else "no images"
        )
        return f"## Accuracy\n\nNot measured: {why}. Run `prolip eval` on images of your own."
    lines = [
        "## Accuracy",
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
    if not config["fit"]["images"]:
        return "## Confidence\n\nProbabilities are not calibrated: there was no labelled image."
    measured = config.get("evaluation") or config.get("held_out") or {}
    floor = measured.get("calibration_error_floor")
    sentences = [
        f"They are calibrated on the labelled images by one temperature, {config['temperature']:.3g}, "
        "which does not change the predicted class."
    ]
    if "calibration_error" in measured:
        sentences.append(
            f"Expected calibration error: {_percent(measured['calibration_error_before'])} at temperature 1, "
            "before calibration, and "
            f"{_percent(measured['calibration_error'])} after (0 means that of the predictions with 80 % "
            "confidence, 80 % are correct"
            + (f"; with that many images, {_percent(floor)} is due to chance)." if floor else ").")
        )
    sentences.append(
        "It predicts one of its classes whatever the image shows. `prolip predict --reject` rejects "
        "out-of-distribution images, unlike all of the labelled ones; a plain softmax does not."
    )
    return "## Confidence\n\n" + " ".join(sentences)


def _origin(config: dict[str, Any]) -> str:
    rows = {
        "base model": _code(config["model"], table=True),
        "revision": config.get("revision"),
        "weights": _code(config["fingerprint"], table=True) if config.get("fingerprint") else None,
        "licence": config.get("licence") or "see the base model",
        "made with": f"prolip {config['prolip']}",
    }
    lines = [f"| {key} | {value} |" for key, value in rows.items() if value]
    return "\n".join(["## Origin", "", "| | |", "| --- | --- |", *lines])


def _plain(name: Any, table: bool = False) -> str:
    """Return a name as it is, where it contains no markup; otherwise as code."""
    return str(name) if re.fullmatch(r"[^\W_](?:[\w ,'-]*[^\W_])?", str(name)) else _code(name, table)


def _code(name: Any, table: bool = False) -> str:
    """Return a name as code, between more backticks than it contains; control characters as escapes."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in readable(str(name)))
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if len(fence) > 1 or text != text.strip() else ""
    found = f"{fence}{space}{text}{space}{fence}"
    return found.replace("|", "\\|") if table else found


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


SIGMOID = (
    "\n\nThe pipeline shows a sigmoid of each score, as it does for every SigLIP. The probabilities above "
    "are a softmax over the classes."
)


def programs(config: dict[str, Any], files: Collection[str]) -> list[str]:
    """Return Markdown for each library that can load a folder with these files."""
    labels = json.dumps([str(name).replace("_", " ") for name in config["classes"]], ensure_ascii=False)
    template = json.dumps((config.get("templates") or ["a photo of a {}."])[0], ensure_ascii=False)
    values = {"labels": labels, "template": template}
    text = Path(__file__).with_name("card_programs.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (\S+): ([^\n]*)\n\n(```python\n.*?\n```)$", text, re.MULTILINE | re.DOTALL)
    found = {
        file: f"With {title}:\n\n{Template(program).substitute(values)}"
        for file, title, program in sections
        if file in files
    }
    if config.get("sigmoid") and "config.json" in found:
        found["config.json"] += SIGMOID
    return list(found.values())
