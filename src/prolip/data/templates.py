"""The paper's prompt templates: one sentence per dataset, an ensemble of seven for ImageNet."""

from collections.abc import Sequence

from prolip.core.errors import UnknownNameError, UsageError
from prolip.data.imageset import name_key

DEFAULT: tuple[str, ...] = ("a photo of a {}.",)

IMAGENET: tuple[str, ...] = (
    "itap of a {}.",
    "a bad photo of the {}.",
    "a origami {}.",
    "a photo of the large {}.",
    "a {} in a video game.",
    "art of the {}.",
    "a photo of the small {}.",
)

TEMPLATES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("default", "caltech101", "stanford_cars", "sun397"), DEFAULT),
    "dtd": ("{} texture.",),
    "eurosat": ("a centered satellite photo of {}.",),
    "fgvc_aircraft": ("a photo of a {}, a type of aircraft.",),
    "food101": ("a photo of {}, a type of food.",),
    "flowers102": ("a photo of a {}, a type of flower.",),
    "oxford_pets": ("a photo of a {}, a type of pet.",),
    "ucf101": ("a photo of a person doing {}.",),
    **dict.fromkeys(("imagenet", "imagenet_a", "imagenet_v2", "imagenet_r", "imagenet_sketch"), IMAGENET),
}


def templates_for(name: str) -> tuple[str, ...]:
    """Return the paper's templates for a dataset.

    Case, underscores and hyphens do not matter.

    Examples
    --------
    >>> templates_for("OxfordPets")
    ('a photo of a {}, a type of pet.',)
    """
    known = {name_key(dataset): templates for dataset, templates in TEMPLATES.items()}
    if (key := name_key(name)) not in known:
        raise UnknownNameError("set of templates", name, TEMPLATES)
    return known[key]


def as_templates(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return templates from None, a dataset's name, a sentence with `{}`, or several sentences."""
    if value is None:
        return DEFAULT
    if isinstance(value, str) and "{" not in value and " " not in value.strip():
        return templates_for(value)
    templates = (value,) if isinstance(value, str) else tuple(value)
    for template in templates or ("",):
        if template.count("{}") != 1 or template.count("{") + template.count("}") != 2:
            raise UsageError(f"template {template[:80]!r} must hold one {{}} where the class name goes")
    return templates
