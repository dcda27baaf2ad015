"""sim/memory.py."""

import numpy as np

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa
from tilewright.sim.memory import put


def test_a_field_is_written_and_no_other():
    isa, rng = Isa(PRESETS["tiny"]), np.random.default_rng(0)
    for form in (isa.formats["LOADP"], isa.formats["ALU"]):
        for name, declared in form.fields.items():
            words = rng.integers(0, 1 << 63, (1, 2), np.uint64) * np.uint64(2)
            before = form.decode(words)
            value = int(rng.integers(declared.limits[0], declared.limits[1] + 1))
            put(words[0], declared, value)
            assert {key: int(v[0]) for key, v in form.decode(words).items()} == {
                key: value if key == name else int(v[0]) for key, v in before.items()
            }
