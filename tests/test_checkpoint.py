"""Reading torch's first file format without torch: what is in it, and nothing that it asks for."""

import pickle

import numpy as np
import pytest

from prolip.core import ModelError
from prolip.encoders.legacy_checkpoint import read_checkpoint

KINDS = {"<f4": b"FloatStorage", "<i8": b"LongStorage"}
START = [
    pickle.dumps(0x1950A86A20F9469CFC6C, 2),
    pickle.dumps(1001, 2),
    pickle.dumps({"little_endian": True}, 2),
]


def bare(value):
    """The opcodes that make a plain value, without the pickle's start and stop."""
    return pickle.dumps(value, 2)[2:-1]


def tensor(name, key, storage, offset, size, stride):
    """The opcodes of an entry of the state: a name, and a call on a storage that comes later."""
    kind = b"ctorch\n" + KINDS[storage.dtype.str] + b"\n"
    saved = b"(" + bare("storage") + kind + bare(key) + bare("cpu") + bare(len(storage)) + b"NtQ"
    hooks = b"ccollections\nOrderedDict\n(tR"
    arguments = saved + bare(offset) + bare(size) + bare(stride) + bare(False) + hooks
    return bare(name) + b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"tR"


def write(path, entries, storages):
    """A file as torch wrote them before its format was a zip."""
    state = b"ccollections\nOrderedDict\n(tR(" + b"".join(entries) + b"u."
    data = b"".join(len(values).to_bytes(8, "little") + values.tobytes() for values in storages.values())
    path.write_bytes(b"".join([*START, b"\x80\x02" + state, pickle.dumps(sorted(storages), 2), data]))
    return path


@pytest.fixture
def saved(tmp_path):
    floats, whole = np.arange(24, dtype="<f4"), np.array([7], "<i8")
    entries = [
        tensor("plain", "a", floats, 0, (2, 3, 4), (12, 4, 1)),
        tensor("turned", "a", floats, 4, (3, 2), (1, 6)),
        tensor("count", "b", whole, 0, (), ()),
    ]
    return write(tmp_path / "model.pth", entries, {"a": floats, "b": whole})


def test_tensors_come_out_with_their_strides_and_types(saved):
    found = read_checkpoint(saved)
    assert list(found) == ["plain", "turned", "count"]
    np.testing.assert_array_equal(found["plain"], np.arange(24).reshape(2, 3, 4))
    np.testing.assert_array_equal(found["turned"], [[4, 10], [5, 11], [6, 12]])
    assert found["plain"].dtype == np.float32
    assert (found["count"].shape, found["count"].dtype, int(found["count"])) == ((), np.int64, 7)


@pytest.mark.parametrize(
    ("asked", "argument"),
    [
        ("os system", "touch {}"),
        ("posix system", "touch {}"),
        ("builtins eval", "open('{}', 'w')"),
        ("builtins exec", "open('{}', 'w')"),
        ("subprocess getoutput", "touch {}"),
        ("torch load", "{}"),
        ("torch._utils _rebuild_parameter", "{}"),
        ("collections OrderedDict.fromkeys", "{}"),
    ],
)
@pytest.mark.parametrize("place", [0, 2, 3])
def test_a_file_that_asks_for_more_is_refused_and_runs_nothing(tmp_path, asked, argument, place):
    marker = tmp_path / "it ran"
    module, name = asked.split()
    text = argument.format(marker)
    crafted = f"c{module}\n{name}\n(".encode() + bare(text) + b"tR."
    pickles = [*START, pickle.dumps({}), pickle.dumps([])]
    pickles[place] = crafted
    path = tmp_path / "crafted.pth"
    path.write_bytes(b"".join(pickles))
    with pytest.raises(ModelError, match=rf"is refused: the file asks for {module}\.{name}"):
        read_checkpoint(path)
    assert not marker.exists()


def test_a_file_that_is_cut_is_refused(saved):
    whole = saved.read_bytes()
    for length in [*range(0, len(whole), 37), len(whole) - 1]:
        saved.write_bytes(whole[:length])
        with pytest.raises(ModelError, match="no checkpoint that can be read"):
            read_checkpoint(saved)


def test_a_tensor_outside_its_storage_is_refused(tmp_path):
    floats = np.arange(6, dtype="<f4")
    for offset, stride in ((4, 1), (0, 3)):
        path = write(tmp_path / "m.pth", [tensor("w", "a", floats, offset, (3,), (stride,))], {"a": floats})
        with pytest.raises(ModelError, match="out of bounds"):
            read_checkpoint(path)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "m.pth"
    path.write_bytes(b"PK\x03\x04 a zip")
    with pytest.raises(ModelError, match="no checkpoint that can be read"):
        read_checkpoint(path)
    path.write_bytes(pickle.dumps(1) * 5)
    with pytest.raises(ModelError, match="does not begin as such a file does"):
        read_checkpoint(path)
    with pytest.raises(ModelError, match="No such file"):
        read_checkpoint(tmp_path / "none.pth")
