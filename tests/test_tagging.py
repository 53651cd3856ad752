"""Keywords of photos: added to sidecars and removed again without a trace, and read as labels."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from pictures import COLOURS, blotch
from prolip.api import FewShotClassifier
from prolip.api.tagging import tag, untag
from prolip.core import InputError
from prolip.data.keywords import KeywordWarning, keywords_of, read_keywords
from prolip.io import writing
from prolip.io.xmp import OURS, RDF, BadPacketError, add_keyword, keywords, remove_added

DARKTABLE = """<?xml version="1.0" encoding="UTF-8"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="XMP Core 4.4.0-Exiv2">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/"
    xmlns:darktable="http://darktable.sf.net/" darktable:note="a > b" darktable:xmp_version="5">
   <!-- written by hand -->
   SUBJECT
   <darktable:history><rdf:Seq/></darktable:history>
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
"""
BAG = "<dc:subject><rdf:Bag>\n    <rdf:li>Küste</rdf:li>\n   </rdf:Bag></dc:subject>"
PACKETS = {
    "keywords": DARKTABLE.replace("SUBJECT", BAG).encode(),
    "no keywords": DARKTABLE.replace("SUBJECT", "").encode(),
    "no properties": DARKTABLE.replace("SUBJECT", "").replace("darktable:note", "darktable:other").encode(),
}
BOMB = """<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;"><!ENTITY c SYSTEM "file:///etc/passwd">]>
<x:xmpmeta xmlns:x="adobe:ns:meta/">&b;&c;</x:xmpmeta>"""


def photo(path, colour="red", seed=0, xmp=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    blotch(COLOURS[colour], seed).convert("RGB").save(path)
    if xmp is not None:
        add_segment(path, b"\xff\xe1", b"http://ns.adobe.com/xap/1.0/\0" + xmp)
    return path


def add_segment(path, marker, payload):
    """Put metadata into a JPEG."""
    content = path.read_bytes()
    path.write_bytes(content[:2] + marker + (len(payload) + 2).to_bytes(2, "big") + payload + content[2:])


def added_keywords(packet):
    """Keywords that a packet says were added by us, read by another parser."""
    lists = ElementTree.fromstring(packet).iter(f"{{{OURS}}}added")
    return [item.text for found in lists for item in found.iter(f"{{{RDF}}}li")]


@pytest.mark.parametrize("name", PACKETS)
def test_a_keyword_goes_without_a_trace(name):
    before = PACKETS[name]
    after = add_keyword(before, "cat & <dog>")
    assert added_keywords(after) == ["cat & <dog>"]
    assert keywords(after) == keywords(before)  # what was added here is no label
    assert remove_added(after) == before
    assert add_keyword(before, "Küste") == before or name != "keywords"


def test_an_empty_bag_and_a_new_packet():
    empty = DARKTABLE.replace("SUBJECT", "<dc:subject><rdf:Bag/></dc:subject>").encode()
    assert keywords(remove_added(add_keyword(empty, "cat"))) == []
    new = add_keyword(None, "cat")
    assert remove_added(new) is None
    # A keyword that another program adds later stays.
    mine = new.replace(b"<rdf:li>cat</rdf:li>", b"<rdf:li>cat</rdf:li><rdf:li>mine</rdf:li>", 1)
    assert keywords(remove_added(mine)) == ["mine"]


@pytest.mark.parametrize("content", [BOMB, "<a>" * 100 + "</a>" * 100, "<a", "<a/>".encode("utf-16"), "<a/>"])
def test_what_is_not_xmp_stays_as_it_is(tmp_path, content):
    image = photo(tmp_path / "a.jpg")
    sidecar = tmp_path / "a.jpg.xmp"
    sidecar.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = sidecar.read_bytes()
    with pytest.raises(BadPacketError):
        tag(image, "cat")
    assert sidecar.read_bytes() == before
    assert keywords_of(image) == []


def test_sidecars_are_found_as_photo_managers_name_them(tmp_path):
    first, second = photo(tmp_path / "a.jpg"), photo(tmp_path / "b.jpg")
    (tmp_path / "b.xmp").write_bytes(PACKETS["keywords"])
    for image in (first, second):
        tag(image, "cat")
        tag(image, "dog")  # in place of the other
    assert {file.name for file in tmp_path.iterdir()} == {"a.jpg", "a.jpg.xmp", "b.jpg", "b.xmp"}
    assert added_keywords((tmp_path / "b.xmp").read_bytes()) == ["dog"]
    assert untag([tmp_path]) == (2, [])
    assert {file.name for file in tmp_path.iterdir()} == {"a.jpg", "b.jpg", "b.xmp"}
    assert (tmp_path / "b.xmp").read_bytes() == PACKETS["keywords"]


def test_exiftool_reads_them(tmp_path):
    if shutil.which("exiftool") is None:
        pytest.skip("exiftool is not installed")
    for i, before in enumerate([None, *PACKETS.values()]):
        image = photo(tmp_path / f"{i}.jpg")
        if before is not None:
            (tmp_path / f"{i}.jpg.xmp").write_bytes(before)
        tag(image, "cat & <dog>")
    command = ["exiftool", "-j", "-charset", "utf8", "-XMP-dc:Subject", "-ext", "xmp", str(tmp_path)]
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    subjects = {Path(each["SourceFile"]).name: each["Subject"] for each in found}
    assert subjects["0.jpg.xmp"] == "cat & <dog>"
    assert subjects["1.jpg.xmp"] == ["Küste", "cat & <dog>"]
    # What exiftool writes anew can still be undone.
    subprocess.run(["exiftool", "-q", "-XMP-dc:Subject+=mine", str(tmp_path / "1.jpg.xmp")], check=True)
    untag([tmp_path])
    assert keywords((tmp_path / "1.jpg.xmp").read_bytes()) == ["Küste", "mine"]


def tag_all(images):
    for image in images:
        tag(image, "cat")


def test_a_run_that_ends_early_loses_nothing(tmp_path, monkeypatch):
    images = [photo(tmp_path / f"{i}.jpg") for i in range(12)]
    for image in images[::2]:
        image.with_name(f"{image.name}.xmp").write_bytes(PACKETS["keywords"])
    before = {file.name: hashlib.sha256(file.read_bytes()).digest() for file in tmp_path.iterdir()}
    written = []

    def rename(old, new):
        if len(written) == 5:
            raise KeyboardInterrupt
        written.append(new)
        Path(old).replace(new)

    monkeypatch.setattr(writing, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        tag_all(images)
    monkeypatch.undo()
    assert len(written) == 5
    tag_all(images)
    assert all("cat" in added_keywords(file.read_bytes()) for file in tmp_path.glob("*.xmp"))
    assert untag([tmp_path]) == (12, [])
    assert {file.name: hashlib.sha256(file.read_bytes()).digest() for file in tmp_path.iterdir()} == before


def test_the_command(prolip, photos, colour_model, tmp_path):
    colour_model.save("model")
    folder = shutil.copytree(photos / "test", tmp_path / "new")
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    code, out, err = prolip("predict", "model", folder, "--tag", "--json")
    assert code == 0, err
    assert json.loads(out)["tagged"] == {name: len(list((folder / name).glob("*.png"))) for name in COLOURS}
    for image in before:
        assert added_keywords(Path(f"{image}.xmp").read_bytes()) == [image.parent.name]
    code, out, err = prolip("predict", "model", folder, "--tag", "--unsure", "1", "--json")
    assert code == 0, err
    assert not list(folder.rglob("*.xmp"))  # below that probability, an earlier keyword goes
    assert prolip("predict", "model", folder, "--tag")[0] == 0
    code, out, err = prolip("predict", "model", folder, "--tag", "--undo", "--json")
    assert (code, json.loads(out)["removed"]) == (0, len(before))
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before
    for wrong in (("--undo",), ("--tag", "--sort-into", "x")):
        assert prolip("predict", "model", folder, *wrong)[0] == 2


@pytest.mark.filterwarnings("ignore::prolip.data.keywords.KeywordWarning")
def test_keywords_are_labels(prolip, tmp_path):
    folder = tmp_path / "photos"
    for colour in COLOURS:
        for i in range(3):
            packet = add_keyword(None, colour).replace(b"prolip:added", b"prolip:other")  # as if by others
            image = photo(folder / f"{colour}{i}.jpg", colour, i, None if i else packet)
            if i:
                image.with_name(f"{image.name}.xmp").write_bytes(packet)
    photo(folder / "none.jpg")
    both = add_keyword(add_keyword(None, "red"), "holiday").replace(b"prolip:added", b"prolip:other")
    photo(folder / "both.jpg", "red", 9, xmp=both)
    with pytest.warns(KeywordWarning):
        found = read_keywords(folder)
    assert found.counts() == dict.fromkeys(sorted(COLOURS), 3)
    with pytest.warns(KeywordWarning):
        assert read_keywords(folder, list(COLOURS)).counts()["red"] == 4
    with pytest.warns(KeywordWarning), pytest.raises(InputError):
        read_keywords(folder, ["absent"])
    code, out, err = prolip(
        "fit", folder, "-o", tmp_path / "m", "--labels", "keywords:red, green,blue", "--json"
    )
    assert code == 0, err
    assert json.loads(out)["counts"] == [3, 3, 4]
    assert prolip("fit", folder, "-o", tmp_path / "m2", "--labels", "names")[0] == 2
    code, out, err = prolip("check", folder, "--labels", "keywords:red, green,blue", "--json")
    assert code == 0, err
    assert sum(json.loads(out)["counts"]) == 10
    assert FewShotClassifier.load(tmp_path / "m").classes_.tolist() == sorted(COLOURS)


def test_keywords_of_iptc(tmp_path):
    image = photo(tmp_path / "a.jpg")
    word = "Küste".encode()
    record = b"\x1c\x02\x19" + len(word).to_bytes(2, "big") + word
    block = b"8BIM\x04\x04\x00\x00" + len(record).to_bytes(4, "big") + record + b"\0" * (len(record) % 2)
    add_segment(image, b"\xff\xed", b"Photoshop 3.0\x00" + block)
    with Image.open(image) as opened:
        opened.load()
    assert keywords_of(image) == ["Küste"]


def test_a_damaged_sidecar_stays_and_is_reported(prolip, colour_model, tmp_path):
    colour_model.save(tmp_path / "model")
    for i in range(2):
        photo(tmp_path / "photos" / f"{i}.jpg", "blue", i)
    damaged = tmp_path / "photos" / "1.jpg.xmp"
    damaged.write_text(BOMB)
    code, out, err = prolip("predict", tmp_path / "model", tmp_path / "photos", "--tag", "--json")
    assert (code, json.loads(out)["tagged"], len(err.splitlines())) == (0, {"blue": 1}, 1)
    assert damaged.read_text() == BOMB
    assert untag([tmp_path / "photos"])[0] == 1
    changed, failed = untag([tmp_path / "photos"])
    assert (changed, [path for path, _ in failed]) == (0, [str(damaged)])


def test_images_in_an_archive_have_no_sidecars(prolip, photos, colour_model, tmp_path):
    colour_model.save(tmp_path / "model")
    archive = shutil.make_archive(tmp_path / "photos", "zip", photos / "test")
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    code, _, err = prolip("predict", tmp_path / "model", archive, "--tag")
    assert (code, len(err.splitlines())) == (2, 1), err
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before
