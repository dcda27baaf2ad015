"""PyTorch, imported in one place: the rest of tilewright runs without it, and imports no module that imports this one.

`torch` is the package, `F` its functions. Raises `UnsupportedError` where it is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....hw.errors import UnsupportedError

if TYPE_CHECKING:  # torch is not installed for type checks
    torch: Any
    F: Any
else:
    try:
        import torch
        import torch.fx
        import torch.nn.functional as F
    except ImportError as exc:
        raise UnsupportedError(f"training needs torch ({exc}); pip install 'tilewright[train]'") from None

__all__ = ["F", "torch"]
