"""Options that authors have for single datasets: prompts, epochs, rates.

ProGrad starts from and is taught by a phrase of each dataset, with the class name at its end. KgCoOp is
taught by CoOp's zero-shot prompts, with another one for textures.
"""

from prolip.bench.catalogue.experiment import Options

_PHOTO = "a photo of a {}."
_SATELLITE, _ACTION = "a centered satellite photo of {}.", "a photo of a person doing {}."

_PROGRAD = {
    "imagenet": _PHOTO,
    "caltech101": _PHOTO,
    "stanford_cars": _PHOTO,
    "sun397": _PHOTO,
    "oxford_pets": "a type of pet, a photo of a {}.",
    "flowers102": "a type of flower, a photo of a {}.",
    "fgvc_aircraft": "a type of aircraft, a photo of a {}.",
    "food101": "a type of food, a photo of {}.",
    "dtd": "a texture of {}.",
    "eurosat": _SATELLITE,
    "ucf101": _ACTION,
}
_KGCOOP = {
    "imagenet": _PHOTO,
    "caltech101": _PHOTO,
    "stanford_cars": _PHOTO,
    "sun397": _PHOTO,
    "oxford_pets": "a photo of a {}, a type of pet.",
    "flowers102": "a photo of a {}, a type of flower.",
    "fgvc_aircraft": "a photo of a {}, a type of aircraft.",
    "food101": "a photo of {}, a type of food.",
    "dtd": "a photo of a {}, a type of texture.",
    "eurosat": _SATELLITE,
    "ucf101": _ACTION,
}

COOP: dict[str, Options] = {"imagenet": {"epochs": 50}}
PLOT: dict[str, Options] = {"imagenet": {"pooled": True}}
KGCOOP: dict[str, Options] = {name: {"teacher": prompt} for name, prompt in _KGCOOP.items()}
PROGRAD: dict[str, Options] = {
    name: {"teacher": prompt, "init": prompt.partition(" {}")[0], **COOP.get(name, {})}
    for name, prompt in _PROGRAD.items()
}
TASK_RES: dict[str, Options] = {"imagenet": {"lr": 2e-4}, "flowers102": {"alpha": 1.0}}
