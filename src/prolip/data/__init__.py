"""Images and labels: folders and tables, few-shot sampling, prompt templates, drawn textures."""

from prolip.data.imageset import ImageSet
from prolip.data.inputs import list_images, read_images
from prolip.data.sampling import sample_few_shot
from prolip.data.templates import as_templates, templates_for
from prolip.data.textures import draw_textures

__all__ = [
    "ImageSet",
    "as_templates",
    "draw_textures",
    "list_images",
    "read_images",
    "sample_few_shot",
    "templates_for",
]
