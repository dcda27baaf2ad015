"""sim/mutants.py: every class of mistake is made, each in one place."""

from collections import Counter
from itertools import islice

import numpy as np

from tilewright.hw.config import PRESETS
from tilewright.sim.mutants import KINDS, mutants
from tilewright.sim.random_programs import Recorder

TINY = PRESETS["tiny"]


def test_mutants_differ_in_one_thing_of_every_class(program):
    base, kinds = program(), Counter()
    for mutant in islice(mutants(base, np.random.default_rng(0)), 400):
        new = mutant.launch
        kinds[mutant.kind] += 1
        same = len(new.insn) == len(base.insn)
        differ = int((new.insn != base.insn).any(axis=1).sum()) if same else len(base.insn) - len(new.insn)
        if mutant.kind == "micro-op":
            (a,), (b,) = ([x.data for x in launch.buffers if x.name == "uop"] for launch in (base, new))
            assert a is not None and b is not None
            assert not differ and (a.view("<u4") != b.view("<u4")).sum() == 1
            continue
        assert new.buffers is base.buffers
        assert differ or (new.reloc != base.reloc).sum() == 1
        if mutant.kind in ("address", "extent", "other field", "token flag dropped", "token flag added"):
            assert differ == 1 and same, mutant.text
        if mutant.kind in ("token flag moved", "token dropped", "token added", "instructions swapped"):
            assert differ <= 2 and same
    assert set(kinds) == set(KINDS) and min(kinds.values()) > 5


def test_finish_comes_earlier(program):
    base = program()
    made = (m for m in mutants(base, np.random.default_rng(1)) if m.kind == "early FINISH")
    for mutant in islice(made, 10):
        at = int(mutant.text.split()[2].rstrip(","))
        assert (mutant.launch.insn[at] == base.insn[-1]).all() and at < len(base.insn) - 1


def test_a_program_without_micro_ops_and_tokens_has_mutants_too():
    to = Recorder(TINY, 0)
    launch = to.program.finish()
    kinds = {mutant.kind for mutant in islice(mutants(launch, np.random.default_rng(0)), 20)}
    assert "micro-op" not in kinds and "token flag dropped" not in kinds
