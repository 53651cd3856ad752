"""What to install is said as it can be typed for this installation."""

import json
import sys
from importlib import metadata

import pytest

from prolip.io.environment import MissingPackageError, install_command


def installed_from(monkeypatch, url):
    class Distribution:
        def read_text(self, name):
            assert name == "direct_url.json"
            return None if url is None else json.dumps(url)

    monkeypatch.setattr(metadata, "distribution", lambda name: Distribution())


@pytest.mark.parametrize(
    ("url", "place"),
    [
        (None, '"prolip[app]"'),
        ({"url": "https://example.org/prolip.git", "vcs_info": {}}, '"prolip[app]"'),
        ({"url": "file:///home/me/my%20clone", "dir_info": {}}, '"/home/me/my clone[app]"'),
        ({"url": "file:///clone", "dir_info": {"editable": True}}, '-e "/clone[app]"'),
    ],
)
def test_the_command_installs_from_where_this_was_installed(monkeypatch, url, place):
    installed_from(monkeypatch, url)
    assert install_command("app") == f"{sys.executable} -m pip install {place}"


def test_a_package_without_metadata_is_installed_by_name(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert install_command("app").endswith('install "prolip[app]"')


@pytest.mark.parametrize("command", [["app"], ["serve", "model"]])
def test_a_server_without_its_packages_says_what_to_install(prolip, monkeypatch, command):
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None)
    code, _, err = prolip(*command)
    assert code == 1
    assert install_command("app") in err
    assert (error := MissingPackageError("this", "starlette", "app")).extra == "app"
    assert error.package == "starlette"
