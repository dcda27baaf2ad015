"""Programs on an interpreter's tensors and in a file, and a delegate's report without an interpreter."""

import json
import threading
import zipfile

import numpy as np
import pytest

from tilewright.apps.delegate import abi as c
from tilewright.apps.delegate import kernel as module
from tilewright.apps.delegate.abi import Given
from tilewright.apps.delegate.delegate import Partition, Report, TilewrightDelegate
from tilewright.apps.delegate.kernel import Kernel, opener
from tilewright.apps.delegate.partition import Program
from tilewright.hw import foreign
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import FileError, InputError, UnsupportedError
from tilewright.runtime.device import Stats, open_device
from tilewright.runtime.executable import Executable, HostStep, Tensor

TINY = PRESETS["tiny"]


def executable():
    """y = x, one step on the host."""
    tensors = {"x": Tensor("x", (1, 2), "int8", "input"), "y": Tensor("y", (2, 1), "int8", "output")}
    return Executable(TINY, "copy", tensors, [HostStep("copy", "reshape", ["x"], ["y"], {"shape": [2, 1]})])


def test_every_place_loads(monkeypatch):
    device = open_device("model", TINY)
    assert opener(device)(executable()).device is device
    load = opener("model")
    assert load(executable()).device is load(executable()).device, "a delegate opens its device once"
    monkeypatch.setattr(module, "open_remote", lambda address, program: address)
    assert opener("pynq:50177")(executable()) == "pynq:50177"

    def mine(program):
        return program

    assert opener(mine) is mine
    with pytest.raises(UnsupportedError, match="unknown device 'gpu'"):
        opener("gpu")


class Tensors(c.Context):
    """The context of an interpreter, with two tensors."""

    def __init__(self, shape=(1, 2)):
        self.abi = abi = c.Abi()
        self.values = [np.array([[5, -6]], np.int8), np.zeros((2, 1), np.int8)]
        self.dims = [c.int_array(list(shape)), c.int_array([2, 1])]
        self.tensors = [
            abi.new("tensor", type=9, data=v.ctypes.data, bytes=v.nbytes, dims=c.ctypes.addressof(d))
            for v, d in zip(self.values, self.dims)
        ]

    def tensor(self, number):
        return self.tensors[number]


def kernel(done=lambda *facts: None, outputs=(1,)):
    program = Program(Given((0,), (0,), (1,)), executable(), ((0, "x"),), ((1, "y"),), 0, 0, 0.0)
    return Kernel(program, outputs, opener("model")(program.executable), threading.RLock(), done)


def test_a_run_reads_and_writes_the_interpreters_memory():
    heard, context = [], Tensors()
    made = kernel(lambda *facts: heard.append(facts))
    made.check(context)
    made.run(context)
    assert context.values[1].tolist() == [[5], [-6]]
    ((program, stats, seconds, values),) = heard
    assert program is made.program and isinstance(stats, Stats) and seconds > 0 and values[1].tolist() == [[5], [-6]]
    made.close()


def test_only_what_the_interpreter_asks_for_is_written():
    context = Tensors()
    kernel(outputs=()).run(context)
    assert not context.values[1].any()


def test_other_shapes_are_refused():
    with pytest.raises(
        InputError, match=r"tensor 'x' has shape \(2, 1\) in the interpreter, programs are for \(1, 2\)"
    ):
        kernel().run(Tensors((2, 1)))


SHAPE = (1, 12, 12, 16)


@pytest.fixture
def path(tflite):
    m = tflite()
    x = m.op("CONV_2D", [m.input(SHAPE), *m.weights((16, 3, 3, 16))], SHAPE, 0.05, -3, strideH=1, strideW=1)
    x = m.op("LOGISTIC", [x], SHAPE, 1 / 256, -128)
    m.output(m.op("ARG_MIN", [x, m.const(np.int32(1))], (1, 12, 16)))
    return m.save()


@pytest.fixture
def saved(path, tmp_path):
    delegate = TilewrightDelegate(path, "pynq_z1_plus", claim=["CONV_2D", "ARG_MIN"], runtime="tflm")
    delegate.save(tmp_path / "programs.zip")
    return delegate, tmp_path / "programs.zip"


def test_what_was_saved_is_loaded(path, saved):
    delegate, file = saved
    again = TilewrightDelegate.load(path, file)
    assert again.report() == delegate.report() and again.cfg == delegate.cfg and again.runtime == "tflm"
    (mine,), (its,) = delegate._plan(), again._plan()
    assert (mine.given, mine.inputs, mine.outputs) == (its.given, its.inputs, its.outputs)
    assert mine.executable.to_bytes() == its.executable.to_bytes()


def test_another_networks_programs_are_refused(path, saved, tmp_path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    (tmp_path / "other.tflite").write_bytes(data)
    with pytest.raises(InputError, match="holds the programs of another network; save them for this one"):
        module.load(saved[1], "0" * 64)
    with pytest.raises(InputError, match="of another network"):
        TilewrightDelegate.load(bytes(data), saved[1])


def change(file, changed):
    """Write the file with other facts."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    facts = json.loads(members["delegate.json"])
    changed(facts)
    members["delegate.json"] = json.dumps(facts).encode()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (lambda facts: facts.update(version=9), "is of version 9; save it again with this release"),
        (lambda facts: facts.pop("parts"), "no file of a delegate's programs, or damaged"),
        (lambda facts: facts["parts"].append({}), "no file of a delegate's programs, or damaged"),
        (lambda facts: facts["parts"][0].update(nodes=["x"]), "no file of a delegate's programs, or damaged"),
        (lambda facts: facts["parts"][0]["ends"].update(inputs=[[0, "y"]]), "names tensor 'y', which its program"),
    ],
)
def test_damage_is_refused(path, saved, changed, text):
    change(saved[1], changed)
    with pytest.raises(FileError, match=text):
        TilewrightDelegate.load(path, saved[1])


def test_other_files_are_refused(path, tmp_path):
    (tmp_path / "text.zip").write_text("text")
    with pytest.raises(FileError, match="no file of a delegate's programs, or damaged"):
        TilewrightDelegate.load(path, tmp_path / "text.zip")
    with pytest.raises(FileError, match="none.zip"):
        TilewrightDelegate.load(path, tmp_path / "none.zip")
    with pytest.raises(FileError):
        TilewrightDelegate(path).save(tmp_path / "no_folder" / "x.zip")


@pytest.mark.parametrize(("at", "value"), [(8, 1), (10, 99), (10, 8)])
def test_other_kinds_of_archives_are_refused(at, value, path, saved):
    """A password, an unknown compression, and data that are not compressed as the archive says."""
    data = bytearray(saved[1].read_bytes())
    data[data.rindex(b"PK\1\2") + at] = value  # of the last member; programs are archives, too
    saved[1].write_bytes(data)
    with pytest.raises(FileError, match="no file of a delegate's programs, or damaged"):
        TilewrightDelegate.load(path, saved[1])


def test_what_has_more_than_memory_allows_is_refused(path, saved, monkeypatch):
    monkeypatch.setattr(foreign, "default_limit", lambda: 1000)
    with pytest.raises(FileError, match=r"has [\d,]+ bytes; at most 1,000 are allowed"):
        TilewrightDelegate.load(path, saved[1])


def test_what_a_damaged_archive_says_stays_short(path, saved):
    """A name as long as the file goes into the error of zipfile."""
    data = bytearray(saved[1].read_bytes())
    data[26:28] = (10_000).to_bytes(2, "little")  # the length of the first member's name, in front of it
    saved[1].write_bytes(data)
    with pytest.raises(FileError, match="no file of a delegate's programs, or damaged") as caught:
        TilewrightDelegate.load(path, saved[1])
    assert len(str(caught.value)) < 1000 and str(caught.value).isprintable()


def test_huge_facts_are_not_read(path, saved, monkeypatch):
    monkeypatch.setattr(module, "_MOST", 100)
    with pytest.raises(FileError, match=r"'delegate.json' has more than 100 bytes"):
        TilewrightDelegate.load(path, saved[1])


def test_the_report_needs_no_interpreter(path):
    report = TilewrightDelegate(path, claim="CONV_2D").report()
    (part,) = report.partitions
    assert (part.operators, part.launches, part.wall_seconds) == (("conv_2d_0",), 1, None)
    assert report.left == tuple(
        (name, "not among the claimed operators, CONV_2D") for name in ("logistic_1", "arg_min_2")
    )
    assert (report.network, report.config, report.device, report.runtime) == ("model", "pynq_z1", "model", "litert")


def test_who_asks_for_the_address_without_an_interpreter_gets_it_after_the_proof(path):
    delegate = TilewrightDelegate(path)
    assert delegate._get_native_delegate_pointer() == delegate._get_native_delegate_pointer() > 0
    assert delegate.error is None and delegate.values == {}


FIRST = Partition(("conv_2d_0", "add_1"), 1_000, 1, 5_000, "simulated by the timing model", 1e-5, None)
SECOND = Partition(("conv_2d_4",), 200, 1, 300, "counted on rtl", 2e-6, 0.25)
LEFT = (("softmax_2", "why"), ("softmax_3", "why"), ("rsqrt_5", "why not"))


def test_the_text_and_the_sums_of_a_report():
    report = Report("net", "tiny", "rtl", "tflm", (FIRST, SECOND), LEFT, None, None)
    assert (report.operators, report.cycles) == (6, 5_300) and abs(report.host_seconds - 1.2e-5) < 1e-12
    assert str(Report("net", "tiny", "rtl", "tflm", (FIRST, SECOND), LEFT, 0.1, None)).splitlines() == [
        "net: 3 of 6 operators in 2 partitions on rtl (tiny, rounding as tflm)",
        "  1: conv_2d_0 to add_1 (2), 1,000 MACs, 5,000 cycles (simulated by the timing model), host 10 us (modelled)",
        "  2: conv_2d_4 (1), 200 MACs, 300 cycles (counted on rtl), host 2 us (modelled), 250.0 ms on this machine",
        "  left: softmax_2, softmax_3: why",
        "  left: rsqrt_5: why not",
    ]
    assert "3 operators in 1 partition on" in str(Report("net", "tiny", "rtl", "tflm", (FIRST,), LEFT[:1], 0, 0))
