"""The definition, the behavioural model and the circuit refuse the same programs, with the same reasons."""

import shutil

import numpy as np
import pytest

from tests.sim.wrong import FINISH, IDS, RIGHT, STORED, TINY, TWO, WRONG, Wrong, program
from tilewright.hw.errors import AccessError
from tilewright.hw.isa import Op
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import random_case
from tilewright.sim.rtl.device import RtlDevice
from tilewright.sim.spec import SpecDevice


@pytest.mark.parametrize("case", WRONG, ids=IDS)
def test_a_wrong_program_is_refused(case: Wrong):
    for device, text in ((SpecDevice(case.cfg), case.definition or case.text), (ModelDevice(case.cfg), case.text)):
        image, address, count = program(case.cfg, case.insns)
        before = image.copy()
        with pytest.raises(case.error) as caught:
            device.run_image(image, address, count)
        assert (type(caught.value), caught.value.index, str(caught.value)) == (case.error, case.index, case.said(text))
        if isinstance(device, ModelDevice):
            np.testing.assert_array_equal(image, before)


@pytest.mark.parametrize("cfg, insns", RIGHT)
def test_the_last_entries_can_be_reached(cfg, insns):
    end = STORED if insns[-1]["op"] == Op.STORE else [FINISH]
    image, address, count = program(cfg, [*insns, *end])
    images = image.copy(), image.copy()
    stats = [kind(cfg).run_image(image, address, count) for kind, image in zip((SpecDevice, ModelDevice), images)]
    assert stats[0] == stats[1] and np.array_equal(*images)


@pytest.fixture(scope="module")
def circuits():
    """Circuits by configuration, each of which goes on after every error."""
    if not shutil.which("g++"):
        pytest.skip("g++ is missing: no circuit can be built")
    return {cfg.name: RtlDevice(cfg, watchdog=2000) for cfg in (TINY, TWO)}


@pytest.mark.circuit
@pytest.mark.parametrize("name", ["tiny", "tiny_two"])
def test_the_circuit_ends_in_the_same_errors_and_goes_on(circuits, name):
    circuit = circuits[name]
    for number, case in enumerate(case for case in WRONG if case.circuit and case.cfg.name == name):
        print(case)
        with pytest.raises(case.error) as caught:
            circuit.run_image(*program(case.cfg, case.insns))
        assert (type(caught.value), caught.value.index) == (case.error, case.index)
        if case.error is not AccessError:  # where an index is wrong, the model knows which
            assert str(caught.value) == case.said(case.text)
        image, address, count = random_case(case.cfg, number)
        expected = image.copy()
        ModelDevice(case.cfg).run_image(expected, address, count)
        circuit.run_image(image, address, count)
        np.testing.assert_array_equal(image, expected)
