"""Operators that the host computes between launches: a row each, by subject (row.py), in one table (table.py)."""

from .row import Operand as Operand
from .table import CHECKS as CHECKS
from .table import HOST_OPS as HOST_OPS
from .table import LAYOUTS as LAYOUTS
from .table import STAGES as STAGES
from .table import VALUE_BY_VALUE as VALUE_BY_VALUE
