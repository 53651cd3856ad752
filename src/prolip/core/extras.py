"""Packages that extras of this package install."""

import json
import sys
from importlib import metadata
from urllib.parse import urlsplit
from urllib.request import url2pathname

from prolip.core.errors import ModelError


class MissingPackageError(ModelError):
    """A package that an extra installs is missing, or cannot be imported."""

    def __init__(self, purpose: str, package: str, extra: str, reason: str = "") -> None:
        self.package, self.extra = package, extra
        why = f", which cannot be imported ({reason})" if reason else ""
        super().__init__(f"{purpose} needs {package}{why}: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation: from its clone, or from an index.

    It names the interpreter, because a `pip` on the path may belong to another one.
    """
    try:
        found = metadata.distribution("prolip").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        found = None
    source = json.loads(found) if found else {}
    clone = source.get("url", "").startswith("file:") and "dir_info" in source
    place = url2pathname(urlsplit(source["url"]).path) if clone else "prolip"
    editable = "-e " if clone and source["dir_info"].get("editable") else ""
    return f'{sys.executable} -m pip install {editable}"{place}[{extra}]"'
