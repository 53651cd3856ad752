"""Push an adapted model to a model hub, and get one from there.

Nothing is sent but by `push`: the tuned matrix, the class texts and the card; features of the training images
and an example image only if the caller says so. A repository is private unless requested otherwise.
"""

from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory

from prolip.api.model import AdaptedModel
from prolip.api.save import describe, save
from prolip.core import ModelError, UsageError
from prolip.core.errors import Parameter, as_text, errors_as, first_line
from prolip.encoders.hub import quiet
from prolip.export.card import model_card
from prolip.export.saved import CARD, CONFIG
from prolip.io.writing import write_text

_TENSORS = ("prolip-*.safetensors", "support-*.safetensors")


def push(model: AdaptedModel, name: str, private: bool, support: bool, force: bool) -> str:
    """Upload a model to the repository OWNER/NAME of a hub, or NAME of the user; return its address.

    The options are those of `FewShotClassifier.push_to_hub`.
    """
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.errors import RepositoryNotFoundError

    name = as_text(name, "name")
    if not get_token():
        raise UsageError("log in to the model hub first: run `hf auth login`, or set HF_TOKEN")
    with _hub_errors(f"{name} cannot be pushed"), TemporaryDirectory() as folder:
        api = HfApi()
        repository = name if "/" in name else f"{api.whoami()['name']}/{name}"
        try:
            files = {file.rfilename for file in api.model_info(repository).siblings or ()}
        except RepositoryNotFoundError:
            files = set()
        if (files := files - {".gitattributes"}) and not force:
            raise UsageError(
                f"{repository} has files already ({min(files)}, ...): name another, or replace "
                "the model in it with ",
                Parameter("force", True),
            )
        save(model, folder, support=support)
        card = model_card(describe(model), {CONFIG}, repository.partition("/")[2], repository)
        write_text(Path(folder, CARD), card)
        address = api.create_repo(repository, private=private, exist_ok=True)
        with quiet():
            api.upload_folder(
                repo_id=repository, folder_path=folder, commit_message="Push a model of prolip",
                delete_patterns=list(_TENSORS),
            )  # fmt: skip
    return str(address)


def fetch(name: str, revision: str | None = None) -> Path:
    """Return the folder of a model: `name` if it is one, otherwise the files of a repository of a hub."""
    from huggingface_hub import snapshot_download

    if Path(as_text(name, "name")).expanduser().is_dir():
        return Path(name).expanduser()
    with _hub_errors(f"{name} cannot be loaded from the hub"), quiet():
        patterns = [CONFIG, CARD, *_TENSORS]
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
    if not (folder / CONFIG).is_file():
        raise ModelError(f"{name} is not a model of prolip: it has no {CONFIG}")
    return folder


def _hub_errors(what: str) -> AbstractContextManager[None]:
    """Raise errors of the hub's library, which are of many kinds, as one line."""
    return errors_as(lambda error: ModelError(f"{what}: {first_line(error)}"))
