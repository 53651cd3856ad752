"""`prolip push`: a model on a model hub."""

from __future__ import annotations

from pathlib import Path

from prolip.cli import options
from prolip.cli.console import OUTPUT, console, escape, print_json
from prolip.cli.parameters import PATH, argument, command, flag, option


@command("push")
@options.saved_model
@argument("name", "NAME", "The repository: OWNER/NAME, or NAME for one of yours.")
@flag("--public", help="Let everybody see it; a new repository is private otherwise.")
@flag("--support", help="Add the features of the training images, so that others can add images and classes.")
@option("--example", type=PATH, metavar="IMAGE", help="An image to try on the page of the model.")
@flag("--force", help="Replace the model in a repository that has files.")
def push(
    saved: options.SavedModel, name: str, public: bool, support: bool, example: Path | None, force: bool
) -> None:
    """Upload a model to the Hugging Face hub, with a model card.

    The tuned matrix, the class texts and the card are sent; images are not. Log in first, with `hf auth
    login` or HF_TOKEN. In Python, `FewShotClassifier.from_pretrained("OWNER/NAME")` loads it.

    $ prolip push my-model me/flowers
    $ prolip push my-model me/flowers --public --example rose.jpg
    """
    clf = saved.load({"device": "cpu"})
    with console(stderr=True).status(escape(f"pushing {saved.path} to {name}")):
        address = clf.push_to_hub(name, private=not public, support=support, example=example, force=force)
    if OUTPUT.get().json:
        print_json({"repository": address})
    else:
        console().print(f"pushed: [bold]{escape(address)}[/]", soft_wrap=True)
