"""Images and labels: folders and tables, few-shot sampling, prompt templates, small built-in sets."""

from prolip.data.builtin import BUILTIN, BuiltinSet, builtin
from prolip.data.datasets import DATASETS, ELEVEN, VARIANTS, Benchmark, Dataset, find_dataset, read_dataset
from prolip.data.datasets_check import DatasetCheck, check_dataset, check_datasets
from prolip.data.imageset import ImageSet, class_names, clean_name
from prolip.data.inputs import list_images, read_images
from prolip.data.lazy import LazyImage
from prolip.data.sampling import sample_few_shot, sample_train_val, warn_of_short_classes
from prolip.data.templates import DEFAULT, TEMPLATES, as_templates, templates_for

__all__ = [
    "BUILTIN",
    "DATASETS",
    "DEFAULT",
    "ELEVEN",
    "TEMPLATES",
    "VARIANTS",
    "Benchmark",
    "BuiltinSet",
    "Dataset",
    "DatasetCheck",
    "ImageSet",
    "LazyImage",
    "as_templates",
    "builtin",
    "check_dataset",
    "check_datasets",
    "class_names",
    "clean_name",
    "find_dataset",
    "list_images",
    "read_dataset",
    "read_images",
    "sample_few_shot",
    "sample_train_val",
    "templates_for",
    "warn_of_short_classes",
]
