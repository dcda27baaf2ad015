"""What tests of programs share."""

import pytest

from tilewright.hw.isa import Isa
from tilewright.hw.units import FLAGS


@pytest.fixture
def token_flags():
    """A function: (mnemonic, flags) of every instruction of a launch but loads of micro-ops."""

    def found(launch):
        isa, lines = Isa(launch.cfg), []
        for f in isa.decode(launch.insn):
            if isa.mnemonic(f) != "LOAD.UOP":
                lines.append(" ".join([isa.mnemonic(f), *(flag for flag in FLAGS if f.get(flag))]))
        return lines

    return found
