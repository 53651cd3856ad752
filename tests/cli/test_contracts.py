"""What other programs read: the keys of every `--json`, of `POST /predict`, and of saved models.

Commands write nothing but what they were told to, their cache apart, and nothing that was there changes.

`contracts.json` has them as they were first published. A key may be added there; renaming or removing one
breaks programs that read it.
"""

import hashlib
import json
from pathlib import Path

import pytest

from pictures import COLOURS, blotch

CONTRACTS = json.loads((Path(__file__).parent / "contracts.json").read_text())
# Objects whose keys are names of the user's, or depend on the method.
OPEN = {"sorted", "left_out", "options", "config", "prompt_names", "files"}


def keys(value):
    """The keys of a JSON value, at every depth; of a list, those of its first element."""
    if isinstance(value, dict):
        return {name: "..." if name in OPEN else keys(each) for name, each in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict | list):
        return [keys(value[0])]
    return None


COMMANDS = {
    "fit": "fit PHOTOS -o model",
    "fit --unlabelled": "fit PHOTOS -o pooled --unlabelled PHOTOS/test",
    "eval": "eval MODEL PHOTOS --out eval.csv",
    "predict": "predict MODEL PHOTOS/test --top 2 --reject",
    "predict --out": "predict MODEL PHOTOS/test --out predictions.csv",
    "predict --sort-into": "predict MODEL PHOTOS/test --sort-into sorted",
    "report": "report MODEL -o report.html",
    "compare": "compare PHOTOS --method zero_shot",
    "check": "check PHOTOS --report check.html --out check.csv",
    "classes": "classes MODEL",
    "classes --rename": "classes MODEL --rename red=crimson -o renamed",
    "add": "add MODEL PHOTOS/test --name-only violet -o grown",
    "curve": "curve MODEL",
    "suggest": "suggest MODEL PHOTOS/test -n 2",
    "export": "export MODEL --to onnx -o exported",
    "embed": "embed MODEL PHOTOS -o index.npz",
    "methods": "methods",
}


TARGETS = ("-o", "--out", "--report", "--sort-into")


def contents(*folders):
    """The hash of every file below these folders."""
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_the_keys_that_programs_know_and_writes_what_it_was_told(
    prolip, photos, tmp_path, world, colour_model, name
):
    colour_model.save(tmp_path / "saved")
    if name == "check":
        blotch(COLOURS["red"], 1).save(photos / "train" / "green" / "wrong.png")
    before = contents(tmp_path, world)
    line = COMMANDS[name].replace("MODEL", str(tmp_path / "saved")).replace("PHOTOS", str(photos))
    words = line.split()
    code, out, err = prolip(*words, "--json")
    assert code == 0, err
    assert keys(json.loads(out)) == CONTRACTS[name]
    after = contents(tmp_path, world)
    assert before.items() <= after.items()
    targets = [world / "work" / words[i + 1] for i, word in enumerate(words) if word in TARGETS]
    new = [path for path in after.keys() - before.keys() if not path.is_relative_to(world / "cache")]
    assert [path for path in new if not any(path.is_relative_to(target) for target in targets)] == []
    assert all(target.exists() for target in targets)


def test_the_keys_of_a_saved_model_stay(colour_model):
    """prolip.json, and the names of the tensors."""
    from safetensors import safe_open

    colour_model.save("model")
    found = {"prolip.json": keys(json.loads(Path("model/prolip.json").read_text()))}
    for path in sorted(Path("model").glob("*.safetensors")):
        with safe_open(path, "numpy") as file:
            found[path.name.partition("-")[0]] = sorted(file.keys())
    assert found == CONTRACTS["saved model"]


def test_the_keys_of_a_prediction_over_http_stay(colour_model):
    """`POST /predict`: an image, and one that cannot be read; and `GET /models`."""
    for library in ("starlette", "uvicorn"):
        pytest.importorskip(library, reason="the extra `app` is not installed")
    from app_server import Client, png, running_models

    image = png(blotch(COLOURS["red"], 5))
    with running_models({"colours": colour_model.model_}) as port:
        client = Client(port)
        found = {
            "/predict": client.raw("POST", "/predict?top=2&reject=true", image),
            "/predict error": client.raw("POST", "/predict", b"no image"),
            "/models": client.raw("GET", "/models"),
        }
    assert {name: keys(json.loads(body)) for name, (_, _, body) in found.items()} == {
        name: CONTRACTS[name] for name in found
    }
