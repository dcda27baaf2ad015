"""The proof, the behavioural model and the timing model agree on which programs are legal, and on the error."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest

from tests.runs import result_on
from tilewright.hw.errors import EncodingError, ProgramError, RaceError, TilewrightError
from tilewright.runtime.verify import verify
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.mutants import mutants
from tilewright.sim.mutation import CONFIGS
from tilewright.sim.random_programs import Recorder, record_random
from tilewright.sim.timing.device import TimingDevice


def study(count, seed):
    """(what was agreed on; the cases of which one says legal and another does not, or another class)."""
    found, differ, number = Counter(), [], 0
    while number < count:
        rng = np.random.default_rng([seed, number])
        recorder = Recorder(CONFIGS[number // 10 % len(CONFIGS)], int(rng.integers(1 << 32)))
        record_random(recorder, int(rng.integers(1, 6)))
        launch = recorder.program.finish()
        for text, mutant in [("itself", launch), *((m.text, m.launch) for m in islice(mutants(launch, rng), 9))]:
            number += 1
            try:
                verify(mutant)
                proof: TilewrightError | None = None
            except TilewrightError as exc:
                proof = exc
            model, timing = (result_on(device(mutant.cfg, capacity=1 << 18), mutant) for device in DEVICES)
            own = type(proof).__name__ if proof else ""
            if model[::2] != timing[::2]:  # the class and the memory
                differ.append((mutant.cfg.name, number, text, own, model[0], timing[0]))
            elif model[0] != own and not _one_may_see_more(proof, model[0]):
                differ.append((mutant.cfg.name, number, text, own, model[0]))
            found[own, model[0]] += 1
    return found, differ


DEVICES = (ModelDevice, TimingDevice)


def _one_may_see_more(proof, model):
    """What one execution cannot show: a race, what lies outside of a buffer but in memory, tokens of other orders."""
    if isinstance(proof, (RaceError, EncodingError)) or type(proof) is ProgramError:
        return True  # addresses that do not fit depend on where the buffers are
    if proof is None:
        return model == "EncodingError"
    return model in ("", "EncodingError") and type(proof).__name__ in ("AccessError", "TokenError", "DeadlockError")


def check(count, seed):
    found, differ = study(count, seed)
    print(f"seed {seed}: {dict(found)}")
    assert not differ
    assert found["", ""] > count // 10 and len(found) > 5


def test_mutants_are_judged_alike():
    check(50, 1)


@pytest.mark.slow
def test_many_mutants_are_judged_alike():
    check(3000, 2)
