import json
import subprocess
import sys

import pytest

RUN = [sys.executable, "-c", "from prolip.cli import main; main()"]


def test_help_teaches_and_loads_no_heavy_library():
    program = (
        "import sys; sys.argv = ['prolip', '--help']\n"
        "from prolip.cli import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "assert not {'torch', 'numpy', 'PIL'} & set(sys.modules), 'heavy'\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Learn the classes of a folder" in done.stdout


def test_fit_predict_eval(prolip, photos, tmp_path):
    code, out, err = prolip("fit", photos, "-o", tmp_path / "model", "--lam", "0.01", "--json")
    assert code == 0, err
    told = json.loads(out)
    assert (told["classes"], told["images"], told["shots"], told["lam"]) == (3, 18, 6, 0.01)
    assert told["seconds"] > 0

    code, out, _ = prolip("eval", tmp_path / "model", photos, "--json")
    told = json.loads(out)
    assert told["accuracy"] == 1.0
    assert 0 <= told["zero_shot_accuracy"] <= 1
    assert told["classes"] == ["blue", "green", "red"]

    code, out, _ = prolip("predict", tmp_path / "model", photos / "test" / "red", "--json")
    answers = json.loads(out)
    assert [a["class"] for a in answers] == ["red"] * 4

    code, out, err = prolip("eval", tmp_path / "model", photos / "train")
    assert "18 of these images were in the support set" in err
    assert "accuracy 100.0 %" in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("fit", "nowhere", "-o", "OUT"), 1, "nowhere"),
        (("fit", "PHOTOS", "-o", "OUT", "--model", "ofline"), 2, "did you mean 'offline'"),
        (("fit", "PHOTOS", "-o", "OUT", "--method", "prolib"), 2, "did you mean 'prolip'"),
        (("fit", "PHOTOS", "-o", "OUT", "--device", "abacus"), 2, "choose auto, cpu, cuda or mps"),
        (("fit", "PHOTOS", "-o", "OUT", "--lam", "-1"), 2, "lam must be"),
        (("fit", "PHOTOS"), 2, "--out"),
        (("predict", "nowhere", "a.jpg"), 1, "no such folder"),
        (("eval", "PHOTOS", "PHOTOS"), 1, "prolip.json is missing"),
    ],
)
def test_wrong_input_is_one_line_and_an_exit_code(prolip, photos, tmp_path, arguments, code, message):
    places = {"PHOTOS": str(photos), "OUT": str(tmp_path / "out")}
    got, out, err = prolip(*(places.get(a, a) for a in arguments))
    assert got == code
    assert message in err
    assert "Traceback" not in err
    assert out == ""
    assert not (tmp_path / "out").exists()


def test_a_bad_image_stops_the_fit_and_skip_bad_goes_on(prolip, photos, tmp_path):
    bad = photos / "train" / "red" / "0.png"
    bad.write_bytes(b"not an image")
    code, _, err = prolip("fit", photos, "-o", tmp_path / "model", "--lam", "0.01")
    assert code == 1
    assert "0.png" in err
    assert not (tmp_path / "model").exists()
    code, out, err = prolip("fit", photos, "-o", tmp_path / "model", "--lam", "0.01", "--skip-bad", "--json")
    assert code == 0
    assert json.loads(out)["skipped"] == 1
    assert "1 images could not be read" in err


def test_other_files_in_the_target_are_not_overwritten(prolip, photos, tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("years of work")
    code, _, err = prolip("fit", photos, "-o", tmp_path / "taken", "--lam", "0.01")
    assert code == 2
    assert "thesis.tex" in err


def test_methods_are_listed(prolip):
    code, out, _ = prolip("methods", "--json")
    assert code == 0
    listed = {m["name"]: m for m in json.loads(out)}
    assert listed["prolip"]["open_class"] is True


def test_version(prolip):
    import prolip as package

    assert prolip("--version")[1] == f"prolip {package.__version__}\n"
