"""Types of the arrays that host operators compute with, by their elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyArray = NDArray[Any]
Int8 = NDArray[np.int8]
Int16 = NDArray[np.int16]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]
Bool = NDArray[np.bool_]
Ints = Sequence[int]
Attrs = dict[str, Any]  # the attributes of a step by name: JSON values, and constant arrays
