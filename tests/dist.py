"""Check a wheel and an sdist: `python tests/dist.py dist` looks at both, installs each, and tries it.

The installed package is tried outside the clone, with an empty home, by the commands of a first session.
"""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from email import message_from_string
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "prolip"
MAX_WHEEL = 1_000_000  # bytes
IGNORED = {"__pycache__", ".DS_Store"}
BESIDE = {"README.md", "LICENSE", "NOTICE", "CHANGELOG.md", "CITATION.cff", "pyproject.toml"}


def version():
    """`prolip.__version__`, the one place that has the version."""
    return re.search(r'^__version__ = "(.+)"$', (PACKAGE / "__init__.py").read_text("utf-8"), re.MULTILINE)[1]


def package_files():
    """The files of the package as the wheel names them."""
    files = (path for path in PACKAGE.rglob("*") if path.is_file() and not IGNORED & set(path.parts))
    return {"prolip/" + path.relative_to(PACKAGE).as_posix() for path in files}


def check_wheel(path):
    """Contents, size and metadata of a wheel; return the metadata."""
    assert path.name == f"prolip-{version()}-py3-none-any.whl"
    assert path.stat().st_size < MAX_WHEEL, f"{path.name} has {path.stat().st_size:,} bytes"
    info = f"prolip-{version()}.dist-info/"
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        metadata = message_from_string(wheel.read(info + "METADATA").decode())
        entries = wheel.read(info + "entry_points.txt").decode()
    assert {name for name in names if not name.startswith(info)} == package_files()
    assert {info + "licenses/LICENSE", info + "licenses/NOTICE", "prolip/py.typed"} <= names
    assert metadata["Version"] == version()
    assert "prolip = prolip.__main__:main" in entries
    return metadata


def check_sdist(path):
    """Contents of an sdist: what builds the wheel, what people look for, and the tests."""
    top = f"prolip-{version()}/"
    assert path.name == f"prolip-{version()}.tar.gz"
    with tarfile.open(path) as sdist:
        names = {name.removeprefix(top) for name in sdist.getnames()}
    assert BESIDE | {"src/" + name for name in package_files()} <= names
    assert "tests/conftest.py" in names
    outside = {name.partition("/")[0] for name in names if name.startswith(".")}
    assert outside <= {".gitignore", ".pre-commit-config.yaml", ".prettierrc.json"}, outside


def check_changelog():
    """The changelog begins with this version, or with what comes after it."""
    sections = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)
    title, _, text = sections[1].partition("\n")
    assert title.split()[0] in ("Unreleased", version()), title
    assert len(text.strip()) > 100


def try_installed(path):
    """Install a file into a new environment, and run a first session there."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        venv.create(place / "venv", with_pip=True)
        binaries = place / "venv" / ("Scripts" if os.name == "nt" else "bin")
        (place / "home").mkdir()
        (place / "work").mkdir()
        kept = {
            name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "SYSTEM"))
        }
        kept |= {"HOME": str(place / "home"), "USERPROFILE": str(place / "home")}
        kept["PATH"] = os.pathsep.join([str(binaries), os.environ["PATH"]])

        def run(*command):
            print("$", *command, flush=True)
            subprocess.run(command, cwd=place / "work", env=kept, check=True)

        run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(path.resolve()))
        run("python", "-c", f"import prolip; assert prolip.__version__ == {version()!r}")
        run("prolip", "demo")
        run("prolip", "predict", "prolip-demo/textures-model", "prolip-demo/photos/test", "--top", "3")
        run("prolip", "export", "prolip-demo/textures-model", "--to", "onnx", "-o", "onnx")


def main():
    """Check what `python -m build` has written."""
    folder = Path(sys.argv[1])
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    check_changelog()
    check_wheel(wheel)
    check_sdist(sdist)
    for path in (wheel, sdist):
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB", flush=True)
    for path in (wheel, sdist):
        try_installed(path)
    print("both install and work")


if __name__ == "__main__":
    main()
