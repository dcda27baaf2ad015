"""runtime/proof/instructions.py, against the decoder of single instructions."""

import numpy as np
import pytest

from tilewright.hw.errors import ExecutionError
from tilewright.hw.isa import known_isa
from tilewright.hw.units import channels
from tilewright.runtime.proof.order import Instructions
from tilewright.runtime.tokens import popped, pushed


def test_columns_are_what_the_decoder_says(launch):
    program, isa, every = Instructions(launch.cfg, launch.insn), known_isa(launch.cfg), channels(launch.cfg)
    seen = dict.fromkeys(program.queues, 0)
    for k, f in enumerate(isa.decode(launch.insn)):
        queue = isa.queue(f)
        seen[queue] += 1
        assert (program.queue[k], program.position[k]) == (queue, seen[queue])
        assert [every[c] for c in program.pops[k]] == popped(every, queue, f)
        assert [every[c] for c in program.pushes[k]] == pushed(every, queue, f)
        assert program.dram_base[k] == f.get("dram_base", program.dram_base[k])
        form = program.forms[program.form[k]]
        same = [name for name in f if name not in ("dram_base", "pop_prev", "pop_next", "push_prev", "push_next")]
        assert [form[name] for name in same] == [f[name] for name in same]
    assert len(program.forms) < program.n


def test_names_have_the_operator(launch):
    program = Instructions(launch.cfg, launch.insn, origins=launch.origins)
    assert program.name(0).startswith("instruction 0 (LOAD.INP ") and program.name(0).endswith(") of tile0")


def test_what_cannot_be_decoded_is_named(launch):
    insn = launch.insn.copy()
    insn[3, 0] = insn[3, 0] & ~np.uint64(7) | np.uint64(7)
    with pytest.raises(ExecutionError, match="instruction 3 .*unit ternary is not in configuration vta"):
        Instructions(launch.cfg, insn)
    with pytest.raises(ExecutionError, match="program has no FINISH"):
        Instructions(launch.cfg, launch.insn[:-1])
