"""Images and labels: folders and tables, few-shot sampling, prompt templates, drawn textures."""

from prolip.data.imageset import ImageSet, LazyImage, class_names, clean_name
from prolip.data.inputs import list_images, read_images
from prolip.data.sampling import sample_few_shot, sample_train_val, warn_of_short_classes
from prolip.data.templates import DEFAULT, TEMPLATES, as_templates, templates_for
from prolip.data.textures import draw_textures

__all__ = [
    "DEFAULT",
    "TEMPLATES",
    "ImageSet",
    "LazyImage",
    "as_templates",
    "class_names",
    "clean_name",
    "draw_textures",
    "list_images",
    "read_images",
    "sample_few_shot",
    "sample_train_val",
    "templates_for",
    "warn_of_short_classes",
]
