"""What a report adds up, and how it reads."""

from tilewright.apps.delegate.delegate import Partition, Report

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
