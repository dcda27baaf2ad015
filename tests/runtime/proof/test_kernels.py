"""runtime/proof/kernels.py, against the accesses of single instructions."""

import numpy as np

from tilewright.hw.isa import SCRATCHPADS, Mem, known_isa
from tilewright.runtime.access import scratchpad_accesses
from tilewright.runtime.proof.memory import Executed, check_transfers
from tilewright.runtime.proof.order import Instructions


def test_instructions_touch_what_their_micro_ops_say(launch):
    uops = launch.uops
    insn = launch.relocate([1 << 20 if b.name != "uop" else 0 for b in launch.buffers])
    program = Instructions(launch.cfg, insn)
    order = np.arange(program.n)
    static = check_transfers(program)
    found = Executed(program, order.tolist(), static, lambda address, count: uops[address // 4 : address // 4 + count])
    held = np.zeros((launch.cfg.uop_depth, 3), np.int64)
    expected = set()
    for k, f in enumerate(known_isa(launch.cfg).decode(insn)):
        if f.get("mem") == Mem.UOP and f["x_size"] and f["op"] == 0:
            words = known_isa(launch.cfg).uop.decode(uops[f["dram_base"] :][: f["x_size"]].astype(np.uint64)[:, None])
            held[f["sram_base"] :][: f["x_size"]] = np.stack([words["dst"], words["src"], words["wgt"]], axis=1)
        for access in scratchpad_accesses(launch.cfg, f, held[f.get("uop_bgn", 0) : f.get("uop_end", 0)]):
            entries = np.arange(1 << 14)[access.entries]
            expected.update((k, access.mem, int(e), access.write, access.updates) for e in entries)
    seen = set()
    for mem in SCRATCHPADS:
        touches, of_entry = found.kinds.touches(mem, found.kind)
        for events in touches.events():
            for turn, cls, write, updates, _ in zip(*(column.tolist() for column in events)):
                seen.update((turn, mem, e, write, updates) for e in np.flatnonzero(of_entry == cls).tolist())
    assert seen == expected and len(seen) > 50
