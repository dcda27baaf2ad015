"""`tilewright_pipeline`: the passes from a quantised Relax module to one with parts on the accelerator."""

from __future__ import annotations

from typing import Any

from ...compiler.frontend.source import SINGLE
from ...compiler.tvm_compat import IRModule, Sequential, ir, relax
from ...hw.config import Config, load_config
from ...hw.errors import InputError, UnsupportedError
from ...hw.rounding import CONTRACTS
from ...runtime.registry import device_entry
from .codegen import Choice, carried
from .partition import Partition
from .reports import LEFT


def tilewright_pipeline(config: Config | str = "pynq_z1", on: str = "model", *, contract: str = SINGLE) -> Any:
    """A pass that gives the accelerator what it can compute of a quantised Relax module; TVM compiles the rest.

    `on` is the device by name, as `tilewright run --on` takes it, and `contract` the rounding contract of the
    requantisation. A module in which nothing can be claimed stays as it is. Raises `ConfigError`, `UnsupportedError`
    for an unknown device, `InputError` for another contract. The pass raises `UnsupportedError` for a module with
    functions that are schedules for the accelerator.

    >>> from tilewright.apps.relax import tilewright_pipeline
    >>> tilewright_pipeline("tiny", on="timing").info.name
    'tilewright'
    """
    choice = _choice(config, on, contract)

    @ir.transform.module_pass(opt_level=0, name="tilewright.CarryPrograms")
    def carry(mod: Any, _ctx: Any) -> Any:
        return carried(mod)

    compile_parts = Sequential([relax.transform.Normalize(), relax.transform.RunCodegen(), carry])

    @ir.transform.module_pass(opt_level=0, name="tilewright")
    def pipeline(mod: Any, _ctx: Any) -> Any:
        found = _partition(mod, choice)
        if found.scheduled:
            raise UnsupportedError("; ".join(found.scheduled))
        return compile_parts(found.module.with_attr(LEFT, found.left)) if found.parts else mod

    return pipeline


def refusals(mod: Any, config: Config | str = "pynq_z1", *, contract: str = SINGLE) -> list[str]:
    """Why integers of a module would not be on the accelerator; `report` says it of a module that has parts there.

    Raises as `tilewright_pipeline`.
    """
    found = _partition(mod, _choice(config, "model", contract))
    return found.scheduled + found.left


def _choice(config: Config | str, on: str, contract: str) -> Choice:
    cfg = load_config(config)
    device_entry(on)
    if contract not in CONTRACTS:
        raise InputError(f"contract {contract!r}: must be one of {', '.join(CONTRACTS)}")
    return Choice(cfg, on, contract)


def _partition(mod: Any, choice: Choice) -> Partition:
    """Raises `InputError` for what is no module."""
    if not isinstance(mod, IRModule):
        raise InputError(f"the pipeline takes an IRModule of Relax functions, not {type(mod).__name__}")
    return Partition(relax.transform.ConvertToDataflow()(mod), choice)
