import dataclasses
import inspect
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import click
import pytest

from odd_lines import commands
from pictures import COLOURS, blotch
from prolip import methods, solvers
from prolip.cli import console, root
from prolip.cli.options import spell
from prolip.core.errors import Parameter, UsageError

RUN = [sys.executable, "-c", "from prolip.cli import main; main()"]


@pytest.mark.every_environment
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
    assert all(command in done.stdout.split() for command in ("fit", "predict", "eval", "app"))


@pytest.mark.every_environment
def test_predicting_loads_no_library_that_it_does_not_need(colour_model, photos, tmp_path):
    colour_model.save(tmp_path / "model")
    picture = photos / "test" / "red" / "0.png"
    program = (
        f"import sys; sys.argv = ['prolip', 'predict', {str(tmp_path / 'model')!r}, {str(picture)!r}]\n"
        "from prolip.cli import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "print({'torch', 'scipy', 'sklearn', 'matplotlib', 'rich.progress'} & set(sys.modules))\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)  # fills the cache
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "red" in done.stdout
    assert done.stdout.splitlines()[-1] == "set()"


def test_fit_predict_eval(prolip, photos, tmp_path):
    code, out, err = prolip(
        "fit", photos, "-o", tmp_path / "model", "--method", "prolip", "-O", "lam=0.01", "--json"
    )
    assert code == 0, err
    outcome = json.loads(out)
    assert (outcome["classes"], outcome["images"], outcome["shots"], outcome["lam"]) == (3, 18, 6, 0.01)
    assert outcome["seconds"] > 0

    code, out, _ = prolip("eval", tmp_path / "model", photos, "--json")
    outcome = json.loads(out)
    assert outcome["accuracy"] == 1.0
    assert 0 <= outcome["zero_shot_accuracy"] <= 1
    assert outcome["classes"] == ["blue", "green", "red"]

    code, out, _ = prolip("predict", tmp_path / "model", photos / "test" / "red", "--json")
    answers = json.loads(out)
    assert [a["class"] for a in answers] == ["red"] * 4

    code, out, err = prolip("eval", tmp_path / "model", photos / "train")
    assert "18 of these images" in err
    assert "accuracy 100.0 %" in out


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("fit nowhere -o OUT", 1, "nowhere"),
        ("fit PHOTOS -o OUT --model ofline", 2, "did you mean 'offline'"),
        ("fit PHOTOS -o OUT --method prolib", 2, "did you mean 'prolip'"),
        ("fit PHOTOS -o OUT --device abacus", 2, "abacus"),
        ("fit PHOTOS -o OUT --method prolip -O lam=best", 2, 'lam must be "auto", "1/N"'),
        ("fit PHOTOS", 2, "--out"),
        ("methods prolib", 2, "did you mean 'prolip'"),
        ("predict nowhere a.jpg", 1, "no saved model at nowhere"),
        ("eval PHOTOS PHOTOS", 1, "it has no prolip.json"),
        ("check", 2, "(help: prolip check --help)"),
        ("predcit a", 2, "predcit"),
    ],
)
def test_wrong_input_is_one_line_and_an_exit_code(prolip, photos, tmp_path, line, code, message):
    places = {"PHOTOS": str(photos), "OUT": str(tmp_path / "out")}
    got, out, err = prolip(*(places.get(word, word) for word in line.split()))
    assert (got, out, len(err.splitlines())) == (code, "", 1)
    assert message in err
    assert not (tmp_path / "out").exists()


def test_a_damaged_image_among_many_is_skipped_and_listed(prolip, photos, tmp_path):
    bad = photos / "train" / "red" / "0.png"
    bad.write_bytes(b"not an image")
    fit = ("fit", photos, "-o", tmp_path / "model", "--method", "prolip", "-O", "lam=0.01")
    code, _, err = prolip(*fit, "--strict")
    assert code == 1
    assert "0.png" in err
    assert "skip it with --skip" in err
    assert not (tmp_path / "model").exists()
    code, out, err = prolip(*fit)
    assert code == 0, err
    assert "17, from 5 (red) to 6" in out
    assert "1 image could not be read and was left out" in err
    assert str(bad) in "".join(err.split())
    assert json.loads(prolip(*fit, "--force", "--json")[1])["skipped"] == 1


def test_too_many_damaged_images_and_a_damaged_class_are_errors(prolip, photos, tmp_path, colour_model):
    saved = tmp_path / "saved"
    colour_model.save(saved)
    fit = ("fit", photos, "-o", tmp_path / "model", "--method", "prolip", "-O", "lam=0.01")
    for name in ("0.png", "1.png"):
        (photos / "train" / "red" / name).write_bytes(b"not an image")
    code, _, err = prolip(*fit)
    assert (code, "2 of 18 images cannot be read, more than 10 %" in " ".join(err.split())) == (1, True)
    assert not (tmp_path / "model").exists()
    for k in range(2, 6):
        (photos / "train" / "red" / f"{k}.png").unlink()
    (photos / "train" / "red" / "1.png").unlink()  # one of 13 is left, the only red one
    for command in (fit, ("compare", photos), ("eval", saved, photos / "train")):
        code, _, err = prolip(*command)
        assert (code, "class 'red' has no image left" in " ".join(err.split())) == (1, True), command


def test_images_to_predict_may_be_damaged_but_not_all(prolip, photos, tmp_path, colour_model):
    saved, red = tmp_path / "saved", photos / "test" / "red"
    colour_model.save(saved)
    for name in ("0.png", "1.png", "2.png"):
        (red / name).write_bytes(b"not an image")
    code, out, err = prolip("predict", saved, red, "--json")
    assert (code, len(json.loads(out))) == (0, 1)
    assert "3 images could not be read" in err
    assert prolip("predict", saved, red, "--strict")[0] == 1
    (red / "3.png").write_bytes(b"not an image")
    for command in (("predict", saved, red), ("embed", saved, red, "-o", tmp_path / "index.npz")):
        code, out, err = prolip(*command)
        assert (code, out) == (1, "")
        assert "none of the 4 images can be read" in err


def test_parameters_in_messages_are_written_as_the_options_of_the_command():
    fit, error = commands()[("fit",)], UsageError("use ", Parameter("force", True))
    for name, value, written in (
        ("force", True, "--force"), ("calibrate", False, "--no-calibrate"), ("skip_bad", True, "--skip"),
        ("images_dir", "X", "--images-dir X"), ("download", True, "--download"),
    ):  # fmt: skip
        assert spell(fit, Parameter(name, value)) == written
    assert spell(commands()[("predict",)], Parameter("download", True)) == "`prolip models get`"
    assert str(error) == "use force=True"


def test_methods_are_listed_and_show_the_options_that_a_fit_takes(prolip):
    listed = json.loads(prolip("methods", "--json")[1])
    assert [method["name"] for method in listed] == methods.names()
    lines = {line.split()[0]: line for line in prolip("methods")[1].splitlines() if line}
    for method in listed:
        name = method["name"]
        assert method["summary"] in lines[name]
        found = json.loads(prolip("methods", name, "--json")[1])["options"]
        assert [option["name"] for option in found] == methods.options(name)
        assert all(option["help"] for option in found)
        defaults = {option["name"]: option["default"] for option in found}
        assert methods.create(name, **{k: v for k, v in defaults.items() if "+" not in name}).name == name
        assert all(option in prolip("methods", name)[1] for option in defaults)


STRANGE = "caf\udce9.jpg"  # how Python holds a name whose byte E9 is no UTF-8
STEERING = "cat\x1b[31m\r\nred\x9b2J\x07\u2028\u202egpj.exe"


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("IMG_1 [edited].jpg", "IMG_1 [edited].jpg"),
        ("x[/b] :dog:", "x[/b] :dog:"),
        (STRANGE, r"caf\udce9.jpg"),
        (STEERING, r"cat\x1b[31m\r\nred\x9b2J\x07\u2028\u202egpj.exe"),
    ],
)
def test_names_are_printed_as_text(capsys, name, printed):
    console.table(name, ["image", name], [[name, name]])
    for tell in (console.say, console.warn, console.fail):
        tell(name)
    console.console().print(f"[bold]{console.escape(name)}[/]")
    out, err = capsys.readouterr()
    assert (out.count(printed), err.count(printed)) == (5, 3)
    assert len(err.splitlines()) == 3
    assert not set(out + err) & set("\x1b\x9b\r\x07\u2028\u202e")


def test_json_is_ascii_whatever_is_in_it(capsys):
    value = {"image": STRANGE, "class": f"café 猫 🐈 {STEERING}"}
    console.print_json(value)
    text = capsys.readouterr().out.rstrip("\n")
    assert json.loads(text) == value
    assert text.isascii()
    assert text.isprintable()


@pytest.mark.parametrize("converged", [True, False])
def test_a_fit_that_reached_no_minimum_says_so(prolip, photos, tmp_path, monkeypatch, converged):
    exact = solvers.exact

    def stopped(*arguments, **options):
        return dataclasses.replace(exact(*arguments, **options), converged=converged)

    monkeypatch.setattr(solvers, "exact", stopped)
    code, _, err = prolip(
        "fit", photos, "-o", tmp_path / "model", "--method", "prolip", "-O", "lam=0.01", "--json"
    )
    assert code == 0, err
    assert ("no minimum was reached" in err) is not converged


def test_hostile_names_in_a_whole_run(prolip, colour_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved = Path("model")
    colour_model.save(saved)
    folder = Path("in")
    folder.mkdir()
    for i, name in enumerate(["a\x1b]0;owned\x07.png", "two\nlines.png", "[red]x[b].png"]):
        blotch(COLOURS["red"], i, size=8).save(folder / name)
    code, out, err = prolip("predict", saved, folder)
    assert code == 0, err
    assert "\x1b" not in out + err
    assert len(out.splitlines()) == 4
    assert "[red]x[b].png" in out
    code, out, err = prolip("predict", saved, "-q", folder, "--out", tmp_path / "answers.csv")
    assert (code, out, err) == (0, "", "")
    code, _, err = prolip("predict", saved, tmp_path / "no\x1b[31m.png")
    assert code == 1
    assert "\x1b" not in err


@pytest.mark.parametrize("source", ["list.csv", "photos.zip", "list.jsonl"])
def test_lists_and_archives_in_every_command(prolip, photos, tmp_path, monkeypatch, source):
    monkeypatch.chdir(photos.parent)
    paths = sorted(photos.glob("*/*/*.png"))
    rows = [(path.relative_to(photos.parent).as_posix(), *path.parts[-3:-1]) for path in paths]
    Path("list.csv").write_text("file_name,split,label\n" + "\n".join(map(",".join, rows)))
    lines = [json.dumps(dict(zip(("file_name", "split", "label"), row, strict=True))) for row in rows]
    Path("list.jsonl").write_text("\n".join(lines))
    with zipfile.ZipFile("photos.zip", "w") as archive:
        for name, *_ in rows:
            archive.write(name)
    code, out, err = prolip("fit", source, "-o", "model", "--method", "prolip", "-O", "lam=0.01", "--json")
    assert code == 0, err
    assert json.loads(out)["images"] == 18
    code, out, err = prolip("eval", "model", source, "--json")
    assert (json.loads(out)["images"], json.loads(out)["accuracy"]) == (12, 1.0), err
    code, out, err = prolip("predict", "model", source, "--json")
    answers = {answer["image"].removeprefix("photos.zip/"): answer["class"] for answer in json.loads(out)}
    assert answers == {name: label for name, _, label in rows}
    code, out, err = prolip("predict", "model", source, "--out", "answers.csv", "--json")
    assert (code, json.loads(out)["written"]) == (0, 30), err
    code, out, err = prolip("predict", "model", "answers.csv", "--json")
    assert code == 0 if source != "photos.zip" else 1, err


def test_columns_of_a_table_can_be_named_in_every_command(prolip, photos, tmp_path):
    listed, saved = tmp_path / "a.csv", tmp_path / "model"
    paths = sorted((photos / "train").glob("*/*.png"))
    rows = [f"{path.relative_to(photos).as_posix()},{path.parent.name}" for path in paths]
    listed.write_text("id,breed\n" + "\n".join(rows))
    images = ("--image-column", "id", "--images-dir", photos)
    columns = (*images, "--label-column", "breed")
    code, _, err = prolip("fit", listed, "-o", saved)
    assert code == 1
    assert "--image-column" in err
    code, out, err = prolip("fit", listed, "-o", saved, *columns, "--shots", "4", "--json")
    assert (code, json.loads(out)["class_names"]) == (0, ["blue", "green", "red"]), err
    assert prolip("eval", saved, listed, *columns)[0] == 0
    assert prolip("check", listed, *columns)[0] == 0
    assert prolip("add", saved, listed, *columns)[0] == 0
    for command in ("predict", "suggest"):
        assert prolip(command, saved, listed, *images)[0] == 0
    out = prolip("compare", listed, "--method", "zero_shot", *columns)[1]
    assert all(str(word) in out.splitlines()[-1] for word in columns)


def test_a_model_is_replaced_only_with_force(prolip, photos, tmp_path):
    fit = ("fit", photos, "-o", tmp_path / "model", "--method", "prolip", "-O")
    assert prolip(*fit, "lam=0.01")[0] == 0
    written = (tmp_path / "model" / "prolip.json").read_bytes()
    code, _, err = prolip(*fit, "lam=0.02")
    assert (code, "--force" in err) == (2, True)
    assert (tmp_path / "model" / "prolip.json").read_bytes() == written
    assert prolip(*fit, "lam=0.02", "--force")[0] == 0
    assert (tmp_path / "model" / "prolip.json").read_bytes() != written


def test_few_images_show_an_interval_instead_of_an_accuracy(prolip, photos, tmp_path):
    for path in sorted((photos / "train" / "red").iterdir())[1:]:
        path.unlink()
    code, out, err = prolip("fit", photos, "-o", tmp_path / "model [1]", "--shots", "2")
    assert code == 0, err
    assert "5, from 1 (red) to 2 (" in out
    assert re.search(r"unknown: 4 held-out images are too few \(95 % interval", out)
    assert "held-out accuracy per class" not in out
    assert f"Next: prolip add '{tmp_path / 'model [1]'}' DIR with 25 images more" in " ".join(out.split())


@pytest.mark.parametrize(
    ("harm", "step"),
    [
        (None, "eval MODEL DIR with other labelled images"),
        ("labels", "check PHOTOS --model offline --report check.html (3 labels may be wrong)"),
    ],
)
def test_a_fit_ends_with_the_most_useful_next_step(prolip, tmp_path, harm, step):
    for k, name in enumerate(COLOURS):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(12):
            wrong = harm == "labels" and i == 0
            blotch(list(COLOURS.values())[(k + wrong) % 3], 100 * k + i).save(
                tmp_path / "photos" / name / f"{i}.png"
            )
    code, out, err = prolip("fit", tmp_path / "photos", "-o", tmp_path / "model")
    assert code == 0, err
    step = step.replace("MODEL", str(tmp_path / "model")).replace("PHOTOS", str(tmp_path / "photos"))
    assert f"Next: prolip {step}" in out
    assert f"Use:  prolip predict {tmp_path / 'model'} IMAGE..." in out


def test_quiet_and_verbose_before_and_after_the_command(prolip, photos, tmp_path):
    saved = tmp_path / "model"
    fit = ("fit", photos, "-o", saved, "--method", "prolip", "-O", "lam=0.01")
    for options, outcome in (((), True), (("-q", "--force"), False)):
        out = prolip(*fit, *options)[1]
        assert "18, 6 of each class" in out
        assert ("Use:  prolip predict" in out) == outcome
        assert re.search(r"95 % interval [\d.]+ to 100\.0 %", out)
        assert ("Of 100 new images like these, it should classify" in out) == outcome
        assert "parameters" not in out
    assert "prolip, lam 0.01" in prolip(*fit, "--force", "-v")[1]
    image = photos / "test" / "red" / "0.png"
    assert prolip("-q", "predict", saved, image)[2] == ""
    out, err = prolip("predict", "-v", saved, image)[1:]
    assert ("red" in out, "3 classes" in err) == (True, True)
    code, _, err = prolip("predict", saved, tmp_path / "nothing.jpg", "-v")
    assert (code, "Traceback" in err) == (1, True)
    assert err.splitlines()[-1].endswith(" s")


def test_without_a_command_there_is_the_help(prolip):
    for group in ((), ("bench",)):
        code, out, _ = prolip(*group)
        assert (code, out.startswith(" ".join(("Usage: prolip", *group)))) == (0, True)


def test_help_lists_every_command_with_a_whole_sentence(prolip):
    out = prolip("--help")[1]
    listed = re.findall(r"^  ([a-z]+  .*)$", out.partition("Everyday:\n")[2], re.MULTILINE)
    assert [line.split()[0] for line in listed] == list(root.commands)
    assert out.index("Everyday:") < out.index("Models:") < out.index("Research:")
    assert all(line.endswith(".") and not line.endswith("...") for line in listed)


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_help_describes_arguments_and_options_and_shows_examples_as_they_are_typed(prolip, path):
    out = prolip(*path, "-h")[1]
    assert out.startswith(f"Usage: prolip {' '.join(path)} [OPTIONS]")
    described = {line.split()[0] for line in out.splitlines() if line.startswith("  ")}
    for parameter in commands()[path].params:
        if isinstance(parameter, click.Argument):
            assert parameter.human_readable_name.split()[0] in described
            assert out.count(f"\n  {parameter.human_readable_name} ") == 1
        elif not parameter.hidden:
            assert parameter.help
            assert parameter.opts[-1] in out
    source = inspect.getsource(inspect.unwrap(commands()[path].callback))
    for example in re.findall(r"^    \$ (.*)$", source, re.MULTILINE):
        assert f"\n    {example}\n" in out


def test_the_shell_completes(prolip, monkeypatch):
    monkeypatch.setenv("_PROLIP_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_CWORD", "1")
    monkeypatch.setenv("COMP_WORDS", "prolip pre")
    assert prolip()[1].split() == ["plain,predict"]
    monkeypatch.setenv("COMP_CWORD", "2")
    monkeypatch.setenv("COMP_WORDS", "prolip predict --uns")
    assert prolip()[1].split() == ["plain,--unsure"]


def test_a_reader_that_has_seen_enough_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m prolip methods --json | head -c 1", shell=True, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("[", "")


@pytest.mark.skipif(os.name == "nt", reason="a POSIX shell closes the streams")
@pytest.mark.parametrize(
    ("rest", "code"), [("a.png 2>&-", 0), ("nowhere.jpg 2>&-", 1), ("a.png <&- >&- 2>&-", 0)]
)
def test_closed_streams_change_neither_the_work_nor_the_exit_code(colour_model, tmp_path, rest, code):
    colour_model.save(tmp_path / "model")
    blotch(COLOURS["red"], 0).save(tmp_path / "a.png")
    line = f"{sys.executable} -m prolip predict model {rest}"
    done = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == code
    assert ("red" in done.stdout) == (rest == "a.png 2>&-")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "model"]


INTERRUPTED = """
import os, signal, sys, time
from prolip.__main__ import main

moment = sys.argv.pop(1)

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)  # ends when the signal is handled

class Finder:
    def find_spec(self, name, path, target=None):
        if name == moment:
            interrupt()

signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore it
sys.meta_path.insert(0, Finder())
main()
"""


@pytest.mark.parametrize("moment", ["prolip.api.classifier", "onnxruntime"])
def test_ctrl_c_is_one_line(colour_model, tmp_path, moment):
    colour_model.save(tmp_path / "model")
    blotch(COLOURS["red"], 0).save(tmp_path / "a.png")
    command = [sys.executable, "-c", INTERRUPTED, moment, "predict", tmp_path / "model", tmp_path / "a.png"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 130, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: interrupted")
