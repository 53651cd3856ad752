"""The wheel and the sdist; `make dist` also installs both and tries them."""

import re

import pytest

import dist


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    from hatchling.builders.sdist import SdistBuilder
    from hatchling.builders.wheel import WheelBuilder

    folder = tmp_path_factory.mktemp("dist")
    builders = [make(str(dist.ROOT)) for make in (WheelBuilder, SdistBuilder)]
    return [next(iter(builder.build(directory=str(folder)))) for builder in builders]


def test_the_wheel_has_the_package_and_nothing_else(built):
    metadata = dist.check_wheel(dist.Path(built[0]))
    minor = [
        name.rpartition(" ")[2] for name in metadata.get_all("Classifier") if re.search(r":: 3\.\d+$", name)
    ]
    assert minor == ["3.10", "3.11", "3.12", "3.13", "3.14"]
    assert metadata["Requires-Python"] == ">=3.10"
    assert "# prolip" in metadata.get_payload()


def test_the_sdist_builds_the_wheel_and_has_what_people_look_for(built):
    dist.check_sdist(dist.Path(built[1]))


def test_the_changelog_begins_with_this_version_or_what_comes_after_it():
    dist.check_changelog()
