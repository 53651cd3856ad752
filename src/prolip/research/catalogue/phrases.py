"""Options that authors have for single datasets: prompts, epochs, rates.

ProGrad starts from and is taught by a phrase of each dataset, with the class name at its end. KgCoOp is
taught by CoOp's zero-shot prompts, with another one for textures.
"""

from prolip.data import templates_for
from prolip.research.catalogue.experiment import Options
from prolip.research.datasets import ELEVEN

# CoOp's zero-shot prompts: each dataset's own, and a single one for ImageNet.
_PROMPTS = {name: templates_for(name)[0] for name in ELEVEN} | {"imagenet": "a photo of a {}."}
_KGCOOP = _PROMPTS | {"dtd": "a photo of a {}, a type of texture."}
_PROGRAD = _PROMPTS | {
    "oxford_pets": "a type of pet, a photo of a {}.",
    "flowers102": "a type of flower, a photo of a {}.",
    "fgvc_aircraft": "a type of aircraft, a photo of a {}.",
    "food101": "a type of food, a photo of {}.",
    "dtd": "a texture of {}.",
}

COOP: dict[str, Options] = {"imagenet": {"epochs": 50}}
PLOT: dict[str, Options] = {"imagenet": {"pooled": True}}
KGCOOP: dict[str, Options] = {name: {"teacher": prompt} for name, prompt in _KGCOOP.items()}
PROGRAD: dict[str, Options] = {
    name: {"teacher": prompt, "init": prompt.partition(" {}")[0], **COOP.get(name, {})}
    for name, prompt in _PROGRAD.items()
}
TASK_RES: dict[str, Options] = {"imagenet": {"lr": 2e-4}, "flowers102": {"alpha": 1.0}}
