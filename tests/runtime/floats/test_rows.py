"""The rows of float operators in the table of host operators."""

from tilewright.runtime.floats.rows import FLOAT_ROWS
from tilewright.runtime.hostops import HOST_OPS


def test_every_row_is_a_host_operator_on_float32():
    assert len(FLOAT_ROWS) == 10
    for function, *_ in FLOAT_ROWS:
        assert HOST_OPS[function.__name__].dtypes == ("float32",)
