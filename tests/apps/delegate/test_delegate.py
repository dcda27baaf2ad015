"""What a delegate knows and reports without an interpreter; tests/delegate has it inside of one."""

import pytest

from tilewright.apps.delegate.delegate import Partition, Report, TilewrightDelegate

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


FIRST = Partition(("conv_2d_0", "add_1"), 1_000, 1, 5_000, "simulated by the timing model", 1e-5, None)
SECOND = Partition(("conv_2d_4",), 200, 1, 300, "counted on rtl", 2e-6, 0.25)
LEFT = (("softmax_2", "why"), ("softmax_3", "why"), ("rsqrt_5", "why not"))


def test_sums():
    report = Report("net", "tiny", "rtl", "tflm", (FIRST, SECOND), LEFT, None, None)
    assert (report.operators, report.cycles) == (6, 5_300) and abs(report.host_seconds - 1.2e-5) < 1e-12


def test_text():
    assert str(Report("net", "tiny", "rtl", "tflm", (FIRST, SECOND), LEFT, 0.1, None)).splitlines() == [
        "net: 3 of 6 operators in 2 partitions on rtl (tiny, rounding as tflm)",
        "  1: conv_2d_0 to add_1 (2), 1,000 MACs, 5,000 cycles (simulated by the timing model), host 10 us (modelled)",
        "  2: conv_2d_4 (1), 200 MACs, 300 cycles (counted on rtl), host 2 us (modelled), 250.0 ms on this machine",
        "  left: softmax_2, softmax_3: why",
        "  left: rsqrt_5: why not",
    ]
    assert "3 operators in 1 partition on" in str(Report("net", "tiny", "rtl", "tflm", (FIRST,), LEFT[:1], 0, 0))
