"""The versions that are tested are the lowest that are declared."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def declared():
    """Lowest versions of what users install, and of what runs the tests."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    text = text[text.index("\ndependencies = [") : text.index("\ndev = [")]
    required = re.findall(r'"([\w-]+)(?:\[[\w,-]+\])?(?:[>=]=([\d.]+))?"', text)
    return {name: version for name, version in required if name != "prolip"}


def in_constraints():
    lines = (ROOT / "constraints-minimum.txt").read_text(encoding="utf-8").splitlines()
    pins = [re.fullmatch(r"([\w-]+)==([\d.]+)(?: #.*)?", line) for line in lines if line[0] != "#"]
    return dict(pin.groups() for pin in pins)


def test_every_dependency_is_tested_at_its_lowest_version():
    found, minimum = in_constraints(), declared()
    assert len(minimum) > 25
    for name, version in minimum.items():
        assert version, f"{name} has no lower bound"
        assert re.fullmatch(rf"{re.escape(version)}(\.0)*", found[name]), name
