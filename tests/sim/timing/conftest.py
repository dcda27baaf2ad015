"""Programs whose instructions overlap in units and banks."""

from tilewright.hw.config import PRESETS, Config
from tilewright.hw.isa import Mem
from tilewright.runtime.program import Program
from tilewright.sim.random_programs import PORTS, ROWS


class Work:
    """A program with inputs and weights on chip: products of unit `ternary` and of GEMM, in rows of one bank each."""

    def __init__(self, cfg: Config, rows: int = 4):
        self.cfg, self.rows, self.p = cfg, rows, Program(cfg)
        x, w = self.p.buffer("x", (rows, cfg.inp_entry_bytes)), self.p.buffer("w", (1, cfg.wgt_entry_bytes))
        t = self.p.buffer("t", (1, cfg.twgt_entry_bytes), signed=False)
        self.y = self.p.buffer("y", (2 * rows, cfg.out_entry_bytes), kind="output")
        self.p.load(Mem.INP, 0, x, 0, x_size=rows)
        self.p.load(Mem.TWGT, 0, t, 0)
        self.p.load(Mem.WGT, 0, w, 0)

    def ternary(self, trips: int, bank: int, at: int = 0) -> None:
        """Products of unit `ternary` in the rows from entry `at` of `bank` on."""
        self.p.ternary([(trips, 0, 0, 0), (self.rows, 1, 1, 0)], bank * self.cfg.bank_depth + at, overwrite=True)

    def gemm(self, trips: int, bank: int) -> None:
        """Products of GEMM in the first rows of `bank`."""
        self.p.gemm([(trips, 0, 0, 0), (self.rows, 1, 1, 0)], bank * self.cfg.bank_depth, overwrite=True)

    def store(self, bank: int, at: int = 0) -> None:
        """STORE of the rows from entry `at` of `bank` on."""
        self.p.store(bank * self.cfg.bank_depth + at, self.y, 0, x_size=self.rows)


# cycles of the simulated circuit, for random programs by seed, for which the timing model is exact
CYCLES = {
    "tiny": {
        0: 4865, 1: 5982, 2: 10490, 3: 1289, 4: 10276, 5: 5510, 6: 2425, 8: 808, 10: 9472, 11: 5963, 12: 10155, 14: 802,
        15: 1226, 16: 8633, 17: 10555, 20: 6389, 21: 7285, 22: 1133, 23: 4628, 24: 4009,
    },
    "tiny_two": {
        0: 2654, 1: 1461, 2: 4744, 3: 3998, 4: 3136, 5: 11088, 7: 6910, 8: 15508, 11: 2037, 12: 4851, 13: 5321,
        14: 8994, 18: 3162, 19: 7612, 20: 3202, 21: 951, 22: 5952, 23: 1400, 24: 5550, 25: 7144,
    },
    "pynq_z1": {0: 7625, 3: 7022, 4: 7458, 5: 4969, 6: 5225, 7: 15458, 14: 13859, 22: 12045, 23: 11201, 59: 15054},
    "rows": {
        4: 7339, 5: 3546, 6: 3633, 9: 4910, 10: 8871, 13: 9091, 14: 19615, 15: 5828, 16: 10404, 17: 5038, 19: 7762,
        20: 5053, 21: 14726, 22: 5735, 24: 10959, 26: 1781, 27: 2274, 28: 8251, 29: 8533, 30: 6471,
    },
    "ports": {
        0: 3202, 2: 3987, 3: 2378, 5: 2607, 8: 2298, 10: 4817, 11: 5580, 12: 2258, 13: 3844, 14: 2079, 15: 5815,
        16: 960, 17: 3459, 18: 17959, 19: 5166, 20: 1976, 21: 3140, 22: 1886, 23: 4495, 24: 13126,
    },
}  # fmt: skip
# counters of the same runs on `tiny`, by seed
COUNTED = ("LOAD_BUSY", "LOAD_TOKEN_WAIT", "LOAD_MEMORY_WAIT", "COMPUTE_BUSY", "STORE_BUSY", "STORE_TOKEN_WAIT")
COUNTERS = {
    0: (396, 4043, 171, 4607, 449, 4643),
    1: (1524, 1468, 908, 5495, 1861, 4387),
    2: (462, 5944, 230, 5857, 6237, 4650),
    3: (323, 0, 124, 1084, 408, 840),
    5: (411, 702, 172, 5269, 579, 5324),
}
CONFIGS = {cfg.name: cfg for cfg in (*map(PRESETS.__getitem__, ("tiny", "tiny_two", "pynq_z1")), ROWS, PORTS)}
