"""Composed operators of ONNX as elementary ones, by name; what is not here, or gives None, stays as it is."""

from __future__ import annotations

from ..nodes import Rewrite
from ..qlinear import QLINEAR
from .norms import NORMS
from .operands import OPERANDS
from .pixels import PIXELS
from .places import PLACES
from .products import PRODUCTS
from .recurrent import RECURRENT

REWRITES: dict[str, Rewrite] = {**NORMS, **OPERANDS, **PIXELS, **PLACES, **PRODUCTS, **RECURRENT, **QLINEAR}
