"""Rename classes: a function from one adapted model to another."""

from collections.abc import Mapping
from dataclasses import replace

from prolip import methods
from prolip.api.model import AdaptedModel
from prolip.core import UsageError
from prolip.core.errors import check_name
from prolip.core.names import normalize_name


def rename_classes(model: AdaptedModel, names: Mapping[str, str]) -> AdaptedModel:
    """Rename classes, {old: new}.

    Nothing is fitted and no prediction changes: the prompts keep the old names, also when the model grows.
    """
    if not names:
        raise UsageError("no classes to rename were named")
    names = {normalize_name(old): normalize_name(new) for old, new in names.items()}
    known = list(map(str, model.classes))
    for old in names:
        check_name("class", old, known)
    classes = [names.get(str(name), name) for name in model.classes]
    if twice := next((name for name in classes if list(map(str, classes)).count(str(name)) > 1), None):
        raise UsageError(f"class {twice!r} exists already: choose another name")
    in_prompts = model.recipe.prompt_names
    replace(model.recipe, prompt_names={}).names_in_prompts(classes)  # refuses names that read alike
    kept = {name: words for name, words in in_prompts.items() if name not in names}
    kept |= {new: in_prompts.get(old, old) for old, new in names.items()}
    text = replace(model.text, classes=tuple(map(str, classes)))
    old_fit = model.fitted
    fitted = methods.restore(
        old_fit.kind, old_fit.tensors(), old_fit.config(), model.encoder.head, text, old_fit.settings,
        old_fit.report,
    )  # fmt: skip
    support, task = model.support, model.support.task
    if task is not None:
        support = replace(support, task=replace(task, text=text))
    recipe = replace(model.recipe, prompt_names=kept)
    return replace(model, recipe=recipe, fitted=fitted, classes=tuple(classes), text=text, support=support)
