"""apps/explore/legal.py: configurations drawn at random are legal, repeat, and reach the whole of every range."""

from tilewright.hw.circuit import check_buildable
from tilewright.hw.config import EXTENSIONS, Config
from tilewright.hw.errors import UnsupportedError
from tilewright.hw.parameters import parameters
from tilewright.sim.dram import Dram
from tools.configs import random_config, random_memory

MANY = [random_config(seed) for seed in range(1000)]


def buildable(cfg: Config) -> bool:
    try:
        check_buildable(cfg)
    except UnsupportedError:
        return False
    return True


def test_the_same_seed_draws_the_same():
    assert random_config(7) == MANY[7] != MANY[8]
    assert random_memory(7) == random_memory(7) != random_memory(8)


def test_most_of_them_can_be_built_and_some_cannot():
    assert 0.7 < sum(map(buildable, MANY)) / len(MANY) < 0.95


def test_every_field_takes_values_over_its_range():
    for name, parameter in parameters(Config).items():
        if not parameter.high or name in ("uop_bytes", "inp_bytes", "wgt_bytes", "acc_bytes", "twgt_bytes", "acc_bits"):
            continue
        values = {getattr(cfg, name) for cfg in MANY}
        if parameter.powers:
            assert min(values) == parameter.low and max(values) == parameter.high, name
        else:
            assert min(values) < 3 * parameter.low and max(values) > parameter.high / 2, name
    for name in ("uop_depth", "inp_depth", "wgt_depth", "acc_depth", "twgt_depth"):
        depths = [getattr(cfg, name) for cfg in MANY]
        assert min(depths) <= 16 and max(depths) >= 4096, name


def test_blocks_units_and_extensions_vary():
    assert sum(cfg.block_in != cfg.block_out for cfg in MANY) > 100
    assert sum("ternary" in cfg.units for cfg in MANY) > 50
    for name in EXTENSIONS:
        assert 100 < sum(name in cfg.extensions for cfg in MANY) < 900, name


def test_memories_are_legal_and_have_no_stalls():
    every = [random_memory(seed) for seed in range(50)]
    assert all(isinstance(dram, Dram) and dram.seed is None for dram in every)
    assert len({dram.latency for dram in every}) > 20
