"""apps/relax/reports.py: parts of modules and executables."""

import importlib

import numpy as np
import pytest

from tilewright.apps.relax import report, tilewright_pipeline
from tilewright.compiler.tvm_compat import relax
from tilewright.hw.errors import InputError


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
