"""The model card (README.md) of an adapted model: classes, accuracy, origin, how to load it.

Names of classes and folders may contain anything: they are written as code, where nothing in them is markup.
"""

import json
import re
from collections.abc import Collection
from pathlib import Path
from string import Template
from typing import Any

from prolip.encoders.pretrained import MODELS
from prolip.io.files import readable

EXAMPLE = "example.jpg"  # an image beside the card, for the hub's page to try


def model_card(
    config: dict[str, Any], files: Collection[str], name: str, repository: str | None = None
) -> str:
    """Return the card in Markdown, from the configuration of a saved model.

    It shows how to load the files of the folder of this name, or of a repository of a hub.
    """
    parts = [
        _front_matter(config, files, name),
        f"# {_plain(name)}",
        _summary(config),
        _classes(config),
        _results(config),
        _confidence(config),
        "\n\n".join(["## How to use it", *programs(config, files, repository)]),
        _origin(config),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _front_matter(config: dict[str, Any], files: Collection[str], name: str) -> str:
    """Return the metadata that model hubs read: YAML, whose values are written as JSON."""
    libraries = {
        "config.json": "transformers",
        "open_clip_config.json": "open_clip",
    }
    library = next((name for file, name in libraries.items() if file in files), "prolip")
    task = "image-classification" if library == "prolip" else "zero-shot-image-classification"
    lines = [f"library_name: {library}", f"pipeline_tag: {task}", *_licence(config.get("licence"))]
    if base := _base_model(str(config["model"])):
        lines.append(f"base_model: {base}")
    lines.append("tags: [prolip, few-shot, image-classification]")
    if EXAMPLE in files:
        labels = ", ".join(str(each).replace("_", " ").replace(",", " ") for each in config["classes"])
        example = {"src": EXAMPLE, "example_title": "an example", "candidate_labels": labels}
        lines.append(f"widget: {_json([example])}")
    measured, where, _ = _measured(config)
    if measured.get("images") and measured.get("accuracy") is not None:
        metrics = [{"type": "accuracy", "name": "accuracy", "value": round(measured["accuracy"], 4)}]
        if measured.get("macro_f1") is not None:
            metrics.append({"type": "f1", "name": "macro F1", "value": round(measured["macro_f1"], 4)})
        dataset = {"type": "imagefolder", "name": f"{measured['images']} images, {where}"}
        about = {"type": "image-classification", "name": "image classification"}
        results = [{"task": about, "dataset": dataset, "metrics": metrics}]
        lines.append(f"model-index: {_json([{'name': name, 'results': results}])}")
    return "\n".join(["---", *lines, "---"])


def _licence(licence: str | None) -> list[str]:
    """Return the licence of the base model by the hub's name for it, where it has one."""
    if not licence:
        return []
    known = {"MIT": "mit", "Apache-2.0": "apache-2.0"}.get(licence.partition(" ")[0])
    return [f"license: {known}"] if known else ["license: other", f"license_name: {_json(licence)}"]


def _base_model(name: str) -> str | None:
    """Return the repository of the base model on the hub."""
    if (known := MODELS.get(name.partition("@")[0])) is not None:
        return known.repository
    found = re.fullmatch(r"(?:hf|onnx):(\w[\w.-]*/[\w.-]+)(?:@\w+)?", name, re.ASCII)
    return found[1] if found else None


def _json(value: Any) -> str:
    """Return JSON, which is also YAML, in one line; what YAML would take for the end of a line is a space."""
    text = json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")
    return "".join(c if c.isprintable() else " " for c in readable(text))


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
    return text


def _results(config: dict[str, Any]) -> str:
    """Return the section with the accuracy."""
    measured, _, where = _measured(config)
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


def _measured(config: dict[str, Any]) -> tuple[dict[str, Any], str, str]:
    """Return figures on test images, if given, otherwise on held-out images of the support set, and which."""
    if not (measured := config.get("evaluation")):
        where = "by cross-validation on the labelled images"
        return config.get("held_out") or {}, "cross-validation", where
    if measured.get("duplicates"):
        where = f"on images of which {measured['duplicates']} were used in the fit, so that it is optimistic"
        return measured, "some of them used in the fit", where
    return measured, "not used in the fit", "on test images that were not used in the fit"


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


def programs(config: dict[str, Any], files: Collection[str], repository: str | None = None) -> list[str]:
    """Return Markdown for each library that can load a folder, or a repository, with these files."""
    labels = json.dumps([str(name).replace("_", " ") for name in config["classes"]], ensure_ascii=False)
    template = json.dumps((config.get("templates") or ["a photo of a {}."])[0], ensure_ascii=False)
    load = f"from_pretrained({_json(repository)})" if repository else 'load("path/to/this/folder")'
    values = {"labels": labels, "template": template, "load": load}
    text = Path(__file__).with_name("card_programs.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (\S+): ([^\n]*)\n\n(```\w+\n.*?\n```)$", text, re.MULTILINE | re.DOTALL)
    found = {
        file: f"With {title}:\n\n{Template(program).substitute(values)}"
        for file, title, program in sections
        if file in files
    }
    if "index.html" in files:
        found["index.html"] = (
            "In a browser: `index.html` classifies photos and camera images, and sends nothing. "
            + (
                "Put the folder on any web host, or try it with `python -m http.server`."
                if "classifier.onnx" in files
                else "It needs no other file and opens from the disk."
            )
        )
    if config.get("sigmoid") and "config.json" in found:
        found["config.json"] += SIGMOID
    return list(found.values())
