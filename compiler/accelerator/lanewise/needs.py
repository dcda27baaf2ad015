"""What kernels with roots and functions of lanes need of a configuration."""

from __future__ import annotations

from ....hw.config import Config
from ...kernels.roots import EXTENSIONS


def needs(cfg: Config) -> str:
    """Reason why `cfg` computes no roots; empty if it does."""
    missing = sorted({*EXTENSIONS} - cfg.extensions)
    if missing:
        return f"it needs the extension{'s' * (len(missing) > 1)} {', '.join(missing)}"
    if cfg.tables < 2:
        return f"it needs 2 tables; {cfg.name} has {cfg.tables}"
    if cfg.batch != 1 or cfg.block_in != cfg.block_out:
        return f"batch {cfg.batch}, blocks {cfg.block_in} and {cfg.block_out}: it needs batch 1 and equal blocks"
    return ""
