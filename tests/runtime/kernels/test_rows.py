"""The rows of this folder's operators are those of the table of host operators."""

from tilewright.runtime.hostops import HOST_OPS
from tilewright.runtime.kernels.rows import KERNEL_ROWS


def test_every_row_is_an_operator_by_its_name():
    assert {row[0].__name__ for row in KERNEL_ROWS} <= set(HOST_OPS)
    assert all(HOST_OPS[row[0].__name__].function is row[0] for row in KERNEL_ROWS)
