"""The model card (README.md) of an adapted model: classes, accuracy, origin, how to load it.

Names of classes and folders may contain anything: they are written as code, where nothing in them is markup.
"""

import json
import re
from collections.abc import Collection
from pathlib import Path
from string import Template
from typing import Any

from prolip.encoders.base import name_in_prompt
from prolip.encoders.pretrained import MODELS
from prolip.io.files import readable

DEFAULT_TEMPLATE = "a photo of a {}."


def model_card(
    config: dict[str, Any], files: Collection[str], name: str, repository: str | None = None
) -> str:
    """Return the card in Markdown, from the configuration of a saved model.

    It shows how to load the files of the folder of this name, or of a repository of a hub.
    """
    metadata = _metadata(config, files, name).to_yaml(line_break="\n")
    parts = [
        f"---\n{metadata.rstrip()}\n---",
        f"# {_plain(name)}",
        _summary(config),
        _classes(config),
        _results(config),
        _confidence(config, files),
        "## How to use it",
        *programs(config, files, repository),
        _origin(config),
    ]
    return "\n\n".join(parts) + "\n"


def _metadata(config: dict[str, Any], files: Collection[str], name: str) -> Any:
    """Return the metadata that model hubs read."""
    from huggingface_hub import EvalResult, ModelCardData

    libraries = {"config.json": "transformers", "open_clip_config.json": "open_clip"}
    library = next((library for file, library in libraries.items() if file in files), "prolip")
    licence = config.get("licence") or ""
    known = {"MIT": "mit", "Apache-2.0": "apache-2.0"}.get(licence.partition(" ")[0], "other")
    measured, where = _measured(config)
    results = [
        EvalResult(
            task_type="image-classification", dataset_type="imagefolder",
            dataset_name=f"{measured['images']} images, {where}",
            metric_type=kind, metric_name=title, metric_value=round(measured[key], 4),
        )
        for kind, title, key in (("accuracy", "accuracy", "accuracy"), ("f1", "macro F1", "macro_f1"))
        if measured.get("images") and measured.get(key) is not None
    ]  # fmt: skip
    return ModelCardData(
        library_name=library,
        pipeline_tag="image-classification" if library == "prolip" else "zero-shot-image-classification",
        license=known if licence else None,
        license_name=licence if licence and known == "other" else None,
        base_model=_base_model(str(config["model"])),
        tags=["prolip", "few-shot", "image-classification"],
        model_name=readable(name) if results else None,
        eval_results=results or None,
    )


def _base_model(name: str) -> str | None:
    """Return the repository of the base model on the hub."""
    if (known := MODELS.get(name.partition("@")[0])) is not None:
        return known.repository
    found = re.fullmatch(r"(?:hf|onnx):(\w[\w.-]*/[\w.-]+)(?:@\w+)?", name, re.ASCII)
    return found[1] if found else None


def _labels(config: dict[str, Any]) -> list[str]:
    """Return the classes as the first prompt calls them."""
    names = (config.get("recipe") or {}).get("prompt_names") or {}
    template = (config.get("templates") or [DEFAULT_TEMPLATE])[0]
    classes = (readable(str(names.get(name, name))).replace("_", " ") for name in config["classes"])
    return [name_in_prompt(template, name) for name in classes]


def _summary(config: dict[str, Any]) -> str:
    fit, count, model = config["fit"], len(config["classes"]), _code(config["model"])
    if not fit["images"]:
        return (
            f"A zero-shot image classifier with {count} classes: it compares features of {model} with the "
            "class names, and was fitted to no labelled image."
        )
    lam = f" (lam = {config['lam']:.3g})" if isinstance(config.get("lam"), (int, float)) else ""
    return (
        f"An image classifier with {count} classes. It was fitted to {fit['images']} labelled images "
        f"({fit['shots']:.3g} of each class) on features of {model} with "
        f"[prolip](https://arxiv.org/abs/2410.05270), by the method {_code(config['method'])}{lam}."
    )


def _classes(config: dict[str, Any]) -> str:
    text = "## Classes\n\n" + ", ".join(map(_code, config["classes"]))
    if templates := config.get("templates"):
        prompts = ", ".join(map(_code, templates))
        text += f"\n\nThe prompt of a class is {prompts}, with its name for `{{}}` (underscores are spaces)"
        text += "; their embeddings are averaged." if len(templates) > 1 else "."
    return text


def _results(config: dict[str, Any]) -> str:
    """Return the section with the accuracy."""
    measured, where = _measured(config)
    if not measured.get("images"):
        return "## Accuracy\n\nNot measured. Run `prolip eval` on images of your own."
    accuracies = {
        "before (zero-shot)": _percent(measured["zero_shot_accuracy"]),
        "this model": f"**{_percent(measured['accuracy'])}**",
    }
    pairs = zip(config["classes"], measured["per_class"], strict=False)
    by_class = {_plain(name, table=True): _percent(value) for name, value in pairs if value is not None}
    text = f"## Accuracy\n\nMeasured {where}, {measured['images']} of them."
    return f"{text}\n\n{_table('| | accuracy', accuracies)}\n\n{_table('| class | accuracy', by_class)}"


def _table(heads: str, rows: dict[str, Any], align: str = "---:") -> str:
    return "\n".join([f"{heads} |", f"| --- | {align} |", *(f"| {k} | {v} |" for k, v in rows.items())])


def _measured(config: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return figures on test images, if given, otherwise on held-out images of the support set, and which."""
    if not (measured := config.get("evaluation")):
        return config.get("held_out") or {}, "by cross-validation on the labelled images"
    if used := measured.get("duplicates"):
        return measured, f"on images of which {used} were used in the fit, so that it is optimistic"
    return measured, "on test images that were not used in the fit"


def _confidence(config: dict[str, Any], files: Collection[str]) -> str:
    if not config["fit"]["images"]:
        return "## Confidence\n\nProbabilities are not calibrated: there was no labelled image."
    measured, _ = _measured(config)
    text = (
        "## Confidence\n\nProbabilities are calibrated on the labelled images by one temperature, "
        f"{config['temperature']:.3g}, which does not change the predicted class."
    )
    if "calibration_error" in measured:
        text += (
            f" Expected calibration error: {_percent(measured['calibration_error_before'])} at "
            f"temperature 1, before calibration, and {_percent(measured['calibration_error'])} after "
            "(0 means that of the predictions with 80 % confidence, 80 % are correct)."
        )
    if "classifier.onnx" in files or "index.html" in files:
        return f"{text} An image unlike all of the labelled ones is reported as none of the classes."
    return f"{text} It predicts one of its classes whatever the image shows."


def _origin(config: dict[str, Any]) -> str:
    rows = {
        "base model": _code(config["model"], table=True),
        "revision": config.get("revision"),
        "weights": _code(config["fingerprint"], table=True) if config.get("fingerprint") else None,
        "licence": config.get("licence") or "see the base model",
        "made with": f"prolip {config['prolip']}",
    }
    return "## Origin\n\n" + _table("| |", {key: value for key, value in rows.items() if value}, "---")


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


def programs(config: dict[str, Any], files: Collection[str], repository: str | None = None) -> list[str]:
    """Return Markdown for each library that can load a folder, or a repository, with these files."""
    templates = config.get("templates") or [DEFAULT_TEMPLATE]
    load = f"from_pretrained({json.dumps(repository)})" if repository else 'load("path/to/this/folder")'
    values = {
        "labels": json.dumps(_labels(config), ensure_ascii=False),
        "template": json.dumps(templates[0], ensure_ascii=False),
        "load": load,
    }
    text = Path(__file__).with_name("card_programs.md").read_text(encoding="utf-8")
    sections = re.split(r"^## (\S+): ", text, flags=re.MULTILINE)[1:]
    found = {
        file: "With " + Template(section.strip()).substitute(values)
        for file, section in zip(sections[::2], sections[1::2], strict=True)
        if file in files
    }
    if "config.json" in found and config.get("sigmoid"):
        found["config.json"] += (
            "\n\nThe pipeline shows a sigmoid of each score, as it does for every SigLIP. The probabilities "
            "above are a softmax over the classes."
        )
    if len(templates) > 1 and {"config.json", "open_clip_config.json"} & found.keys():
        found[""] = f"These programs use the first of {len(templates)} prompts; prolip uses all of them."
    return list(found.values())
