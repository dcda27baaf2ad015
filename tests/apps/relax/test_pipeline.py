"""Relax modules on the accelerator, under TVM's virtual machine: the integers of our own runner, and reports."""

import importlib
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright as tw
from tilewright.apps.relax import refusals, release, report, tilewright_pipeline
from tilewright.apps.relax.runner import KEY, held, key_of, run
from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.tvm_compat import relax, tvm_ffi
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import BoardError, ConfigError, FileError, InputError, ScheduleError, UnsupportedError
from tilewright.hw.isa import Mem
from tilewright.runtime import layout

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "examples" / "digits"
RESNET8 = ROOT.parent / "shared" / "models" / "resnet8_int8.tflite"


def calls(mod):
    """The functions that the main one calls by name."""
    values = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    return [v.op.name.removeprefix("relax.") for v in values if hasattr(getattr(v, "op", None), "name")]


def test_digits_are_exact_and_timed(onnx_module, execute):
    mod = tilewright_pipeline("pynq_z1", on="timing")(onnx_module(onnx.load(DIGITS / "digits.onnx")))
    assert calls(mod) == ["call_dps_packed", "dequantize"]
    network, images = tw.load(DIGITS / "digits.onnx"), np.load(DIGITS / "inputs.npz")["inputs"][:3]
    for image in images:
        outputs, stats = network.run(image, on="timing")
        assert np.array_equal(execute(mod, image), outputs["logits"])
    (part,) = report(mod).parts
    assert (part.name, part.on, part.runs) == ("main_0", "timing", 3)
    assert part.cycles == stats.cycles and part.host_seconds > 0


@pytest.mark.circuit
def test_labels_are_those_of_tvm_and_logits_at_most_a_step_away(onnx_module, execute):
    """TVM computes quantised operators in float32, and so rounds some results to the neighbour."""
    plain = onnx_module(onnx.load(DIGITS / "digits.onnx"))
    mod, step = tilewright_pipeline("tiny")(plain), 0.0515
    for image in np.load(DIGITS / "inputs.npz")["inputs"][:3]:
        ours, theirs = execute(mod, image), execute(plain, image)
        assert ours.argmax() == theirs.argmax()
        assert np.abs(ours - theirs).max() <= step


@pytest.mark.circuit
@pytest.mark.skipif(not RESNET8.exists(), reason="../shared/models is not there")
def test_resnet8_of_a_tflite_file_is_one_part_and_exact(tflite_module, execute):
    mod = tilewright_pipeline("pynq_z1")(tflite_module(RESNET8))
    assert calls(mod) == ["call_dps_packed"]
    network = tw.load(RESNET8)
    x = np.random.default_rng(0).integers(-128, 128, (1, 32, 32, 3)).astype(np.int8)
    (expected,) = network(x).values()
    assert np.array_equal(execute(mod, x), expected)


@pytest.mark.parametrize("seed", [5, 10, 23, 79])
def test_random_tflite_networks_are_exact(seed, random_network, tflite_module, execute):
    """With images in NHWC; TVM's importer refuses those with PAD and STRIDED_SLICE."""
    path = random_network(seed).save()
    mod = tilewright_pipeline("tiny", contract="double")(tflite_module(path))
    assert calls(mod).count("call_dps_packed") == 1 and not report(mod).left
    network = tw.load(path, "tiny")
    x = np.random.default_rng(seed).integers(-128, 128, network.inputs[0].shape).astype(np.int8)
    found = execute(mod, x)
    for mine, expected in zip(found if isinstance(found, list) else [found], network(x).values(), strict=True):
        assert np.array_equal(mine, expected)


@pytest.mark.parametrize("activations", [np.int8, np.uint8])
def test_a_float_operator_in_the_middle_is_left_to_tvm(chain, onnx_module, execute, activations):
    m = chain("Sin", activations)
    mod = tilewright_pipeline("tiny", on="timing")(onnx_module(m.proto()))
    assert calls(mod) == ["call_dps_packed", "dequantize", "sin", "call_dps_packed", "dequantize"]
    x = m.rng.normal(0, 3, (1, 8, 6, 6)).astype(np.float32)
    (expected,) = tw.load(m.save(), "tiny")(x).values()
    assert np.array_equal(execute(mod, x), expected)
    found = report(mod)
    assert [(part.name, part.contract) for part in found.parts] == [("main_0", "single"), ("main_1", "single")]
    assert found.cycles == sum(part.cycles or 0 for part in found.parts) > 1000


def test_a_module_without_anything_to_claim_is_left_alone(onnx_module, execute, qdq):
    m = qdq()
    m.output(m.node("Sin", m.input("x", [1, 4])))
    plain = onnx_module(m.proto())
    mod = tilewright_pipeline("tiny")(plain)
    assert mod.same_as(plain) and report(mod).parts == ()


def test_what_only_the_host_would_compute_is_left_to_tvm(onnx_module, qdq):
    m = qdq()
    m.output(m.quantise(m.node("Sin", m.quantise(m.input("x", [1, 4])))))
    plain = onnx_module(m.proto())
    assert tilewright_pipeline("tiny")(plain).same_as(plain)


def test_why_a_module_stays_is_said(function, quantised):
    def body(emit, x):
        return quantised(emit, emit(relax.op.sin(quantised(emit, x))))

    mod = function(body, ((4, 64), "float32"))
    assert refusals(mod, "tiny") == ["1 result of 'main': no operator in them is faster on the accelerator"] * 2
    with pytest.raises(InputError, match="the pipeline takes an IRModule of Relax functions, not str"):
        refusals("mod")


def calling(schedule, name, in_place=False):
    """A module whose function `main` calls a scheduled one by call_tir, on parameters of packed tensors.

    With `in_place` it calls by call_tir_inplace, which writes the result where the last parameter is.
    """
    scheduled = schedule.mod["main"].with_attr("global_symbol", name)
    params = [
        relax.Var(p.name, relax.TensorType([int(n) for n in p.ty.shape], str(p.ty.dtype))) for p in scheduled.params
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params if in_place else params[:-1]):
        with builder.dataflow():
            var, ty = builder.add_func(scheduled, name), params[-1].ty
            if in_place:
                called = relax.op.call_tir_inplace(var, params, [len(params) - 1], ty)
            else:
                called = relax.call_tir(var, params[:-1], ty)
            result = builder.emit_output(called)
        builder.emit_func_output(result)
    return builder.get()


def test_a_scheduled_function_under_call_tir_runs_on_the_accelerator():
    tvm, rng = importlib.import_module("tvm"), np.random.default_rng(3)
    x, w = rng.integers(-128, 128, (8, 32), np.int8), rng.integers(-128, 128, (16, 32), np.int8)
    mod = calling(dense(PRESETS["vta"], 8, 32, 16), "mine")
    assert refusals(mod, "vta") == []
    compiled = tilewright_pipeline("vta", on="timing")(mod)
    vm = relax.VirtualMachine(tvm.compile(compiled, target="llvm"), tvm.cpu())
    packed = layout.pack_dense_activations(x, PRESETS["vta"]), layout.pack_dense_weights(w, PRESETS["vta"])
    found = layout.unpack_dense_activations(vm["main"](*map(tvm.runtime.tensor, packed)).numpy(), 16)
    assert np.array_equal(found, (x.astype(np.int32) @ w.astype(np.int32).T).astype(np.int8))
    (part,) = report(compiled).parts
    assert (part.name, part.on, part.runs) == ("mine", "timing", 1) and part.cycles
    release()


def test_a_schedule_that_does_not_become_a_program_is_refused_by_name():
    other = calling(dense(PRESETS["vta"], 8, 32, 16), "mine")
    assert re.match("function 'mine': .*tensorized for entries of 16", refusals(other, "tiny")[0])
    with pytest.raises(ScheduleError, match="tiny has 4: give the schedule and build the same configuration"):
        tilewright_pipeline("tiny")(other)


def test_a_scheduled_function_that_is_not_called_by_call_tir_is_refused_by_name():
    mod = calling(dense(PRESETS["vta"], 8, 32, 16), "mine", in_place=True)
    text = "function 'main' uses 'mine', .* otherwise than by R.call_tir: TVM has no code for it; call it by R.call_tir"
    assert re.fullmatch(text, refusals(mod, "vta")[0])
    with pytest.raises(UnsupportedError, match=text):
        tilewright_pipeline("vta")(mod)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_instructions_reach_no_other_back_end(target):
    with pytest.raises(
        UnsupportedError, match="tilewright_(reset|gemm) is an instruction of the accelerator: build the"
    ):
        importlib.import_module("tvm").compile(dense(PRESETS["vta"], 1, 16, 16).mod, target)


@pytest.mark.parametrize("zero", [0, 7, -128])
def test_weights_may_have_a_zero_point(function, quantised, execute, zero):
    def body(emit, x):
        weight = emit(relax.op.dequantize(quantised.weight, quantised.weight_scale, relax.const(np.int8(zero)), axis=1))
        return quantised(emit, emit(relax.op.matmul(quantised(emit, x), weight)))

    plain = function(body, ((4, 64), "float32"))
    mod = tilewright_pipeline("pynq_z1")(plain)
    assert len(report(mod).parts) == 1 and not report(mod).left
    x = np.random.default_rng(0).normal(0, 3, (4, 64)).astype(np.float32)
    assert np.abs(execute(mod, x) - execute(plain, x)).max() < 0.11  # a step is 0.1


def test_an_exported_executable_has_its_programs(chain, onnx_module, execute, tmp_path):
    m = chain()
    x = m.rng.normal(0, 3, (1, 8, 6, 6)).astype(np.float32)
    executable = importlib.import_module("tvm").compile(tilewright_pipeline("tiny")(onnx_module(m.proto())), "llvm")
    np.savez(tmp_path / "x.npz", x=x, y=execute(executable, x))
    executable.export_library(str(tmp_path / "network.so"))
    program = """
import sys, numpy as np, tvm
import tilewright.apps.relax.runner
vm = tvm.relax.VirtualMachine(tvm.runtime.load_module("network.so"), tvm.cpu())
held = np.load("x.npz")
assert np.array_equal(vm["main"](tvm.runtime.tensor(held["x"])).numpy(), held["y"])
assert "tilewright.compiler.network" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=120)


def test_a_second_pipeline_finds_nothing_more(chain, onnx_module):
    mod = tilewright_pipeline("tiny")(onnx_module(chain().proto()))
    assert tilewright_pipeline("pynq_z1")(mod).same_as(mod)


def test_functions_of_other_generators_stay(chain, onnx_module):
    mod = onnx_module(chain().proto())
    mod["main"] = mod["main"].with_attr("Codegen", "other")
    assert tilewright_pipeline("tiny")(mod).same_as(mod)


def test_weights_that_are_parameters_are_left_to_tvm(function, quantised):
    def body(emit, x, w):
        zero = relax.const(np.int8(0))
        real = [emit(relax.op.dequantize(v, quantised.scale, zero)) for v in (x, w)]
        return emit(relax.op.quantize(relax.op.matmul(*real), quantised.scale, zero))

    plain = function(body, ((1, 8), "int8"), ((8, 4), "int8"))
    assert tilewright_pipeline("tiny")(plain).same_as(plain)


def test_options_that_do_not_exist_are_named():
    with pytest.raises(ConfigError, match="unknown preset 'large'"):
        tilewright_pipeline("large")
    with pytest.raises(UnsupportedError, match="unknown device 'gpu'"):
        tilewright_pipeline("tiny", on="gpu")
    with pytest.raises(InputError, match="contract 'triple': must be one of"):
        tilewright_pipeline("tiny", contract="triple")


def test_an_error_of_a_run_has_its_name(chain, onnx_module, execute, no_pynq):
    mod = tilewright_pipeline("pynq_z1", on="board")(onnx_module(chain().proto()))
    with pytest.raises(BoardError, match="pynq is not installed"):
        execute(mod, np.zeros((1, 8, 6, 6), np.float32))


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
