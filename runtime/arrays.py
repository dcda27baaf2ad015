"""Names of array types, by their elements and their usual contents."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]  # elements of any type
Bytes = NDArray[np.uint8]  # the contents of memory
Ints = NDArray[np.int64]  # indices, offsets, counts
Words = NDArray[np.uint64]  # instructions, (n, 2)
