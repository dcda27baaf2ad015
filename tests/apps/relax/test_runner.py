"""apps/relax/runner.py: programs on their devices, each once, what is wrong with others, and reports."""

import importlib
import threading

import numpy as np
import pytest

import tilewright as tw
from tilewright.apps.relax import release, report, tilewright_pipeline
from tilewright.apps.relax.runner import KEY, held, key_of, run
from tilewright.compiler.tvm_compat import relax, tvm_ffi
from tilewright.hw.errors import FileError, InputError
from tilewright.hw.isa import Mem


@pytest.fixture
def program():
    """The bytes of a program that stores the low 8 bits of its input (2, 1, 4)."""
    made = tw.Program("tiny", "copy")
    x, y = made.buffer("in0", (2, 1, 4), 32), made.buffer("out0", (2, 1, 4), kind="output")
    made.load(Mem.ACC, 0, x, 0, x_size=2)
    made.store(0, y, 0, x_size=2)
    yield tw.compile(made).to_bytes()
    release()


def arrays(value=0):
    return np.arange(value, value + 8, dtype=np.int32).reshape(2, 1, 4), np.zeros((2, 1, 4), np.int8)


def test_a_program_is_put_on_its_device_once(program):
    key, blob = key_of("copy", "timing", program), np.frombuffer(program, np.uint8).copy()
    for value in (1, 5):
        x, y = arrays(value)
        run(key, blob, x, y)
        assert np.array_equal(x, y)
    (one,) = held.values()
    assert one.runs == 2 and one.reports[0].stats.cycles
    release()
    assert not held


def test_keys_say_device_name_and_program(program):
    key = key_of("main_0", "model", program)
    match = KEY.fullmatch(key)
    assert match and match.groups() == ("model", "main_0")
    assert key != key_of("main_0", "model", program + b"x")


def test_a_program_of_another_key_is_refused(program):
    blob = np.frombuffer(program, np.uint8)[:-1].copy()
    with pytest.raises(FileError, match="the program is not that of 'tilewright:model:copy:.*compile the module again"):
        run(key_of("copy", "model", program), blob, *arrays())
    with pytest.raises(FileError, match="is not that of 'nothing'"):
        run("nothing", blob, *arrays())


def test_wrong_arrays_are_named(program):
    x, y = arrays()
    blob = np.frombuffer(program, np.uint8).copy()
    with pytest.raises(InputError, match=r"input 'in0': shape \(1, 1, 4\) given"):
        run(key_of("copy", "model", program), blob, x[:1], y)


def test_errors_keep_their_names_through_tvm(program):
    x, y = (tvm_ffi.from_dlpack(array) for array in arrays())
    blob = tvm_ffi.from_dlpack(np.frombuffer(program, np.uint8).copy())
    with pytest.raises(FileError, match="is not that of 'nothing'"):
        tvm_ffi.get_global_func("tilewright.run")("nothing", blob, x, y)


def test_runs_of_several_threads_do_not_mix(program):
    key, blob = key_of("copy", "model", program), np.frombuffer(program, np.uint8).copy()
    wrong = []

    def many(value):
        for _ in range(20):
            x, y = arrays(value)
            run(key, blob, x, y)
            wrong.extend([value] * (not np.array_equal(x, y)))

    threads = [threading.Thread(target=many, args=(10 * k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and held[key].runs == 60


def test_modules_and_executables_have_the_same_parts(function, quantised, execute):
    def body(emit, x):
        middle = emit(relax.op.sin(quantised.layer(emit, quantised(emit, x))))
        return quantised.layer(emit, quantised(emit, middle))

    mod = tilewright_pipeline("tiny", on="timing")(function(body, ((4, 64), "float32")))
    executable = importlib.import_module("tvm").compile(mod, "llvm")
    before = report(mod)
    assert [(part.name, part.runs, part.cycles) for part in before.parts] == [("main_0", 0, None), ("main_1", 0, None)]
    assert before.cycles is None
    execute(executable, np.zeros((4, 64), np.float32))
    found = report(mod)
    assert report(executable).parts == found.parts and [part.runs for part in found.parts] == [1, 1]
    assert found.cycles == sum(part.stats.cycles or 0 for part in found.parts) > 100
    assert all(part.host_seconds > 0 and part.on == "timing" for part in found.parts)


def test_devices_without_a_clock_have_no_cycles(function, quantised, execute):
    mod = tilewright_pipeline("tiny")(
        function(lambda emit, x: quantised.layer(emit, quantised(emit, x)), ((4, 64), "float32"))
    )
    execute(mod, np.zeros((4, 64), np.float32))
    assert report(mod).parts[0].runs == 1 and report(mod).cycles is None


def test_anything_else_is_refused():
    with pytest.raises(InputError, match=r"a report is of an IRModule or of what tvm.compile returns, not str"):
        report("network.so")
