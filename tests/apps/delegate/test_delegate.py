"""What a delegate knows without an interpreter; tests/delegate has it inside of one."""

import pytest

from tilewright.apps.delegate.delegate import TilewrightDelegate

SHAPE = (1, 12, 12, 16)


@pytest.fixture
def path(tflite):
    m = tflite()
    x = m.op("CONV_2D", [m.input(SHAPE), *m.weights((16, 3, 3, 16))], SHAPE, strideH=1, strideW=1)
    m.output(m.op("LOGISTIC", [x], SHAPE, 1 / 256, -128))
    return m.save()


def test_the_report_needs_no_interpreter(path):
    report = TilewrightDelegate(path, claim="CONV_2D").report()
    (part,) = report.partitions
    assert (part.operators, part.launches, part.wall_seconds) == (("conv_2d_0",), 1, None)
    assert report.left == (("logistic_1", "not among the claimed operators, CONV_2D"),)
    assert (report.network, report.config, report.device, report.runtime) == ("model", "pynq_z1", "model", "litert")


def test_who_asks_for_the_address_without_an_interpreter_gets_it_after_the_proof(path):
    delegate = TilewrightDelegate(path)
    assert delegate._get_native_delegate_pointer() == delegate._get_native_delegate_pointer() > 0
    assert delegate.error is None and delegate.values == {}


def test_the_public_name():
    from tilewright.delegate import TilewrightDelegate as Public

    assert Public is TilewrightDelegate
