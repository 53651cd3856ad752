"""What to install is said as it can be typed for this installation."""

import sys

import pytest


@pytest.mark.parametrize("command", [["app"], ["serve", "model"]])
def test_a_server_without_its_packages_says_what_to_install(prolip, monkeypatch, command):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, _, err = prolip(*command)
    assert code == 1
    assert f'{sys.executable} -m pip install "prolip[app]"' in err
