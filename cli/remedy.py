"""One sentence for a network of which little runs on the device: why that is, and the command that mends it."""

from __future__ import annotations

from ..compiler.frontend.source import kind_of, read_source
from ..runtime.executable import Executable, HostStep
from . import report
from .layers import float_steps, share_on_device
from .programs import is_network

_ENOUGH = 0.5  # share of the multiply-accumulates on the device from which nothing is said
_QUANTISE = "tilewright quantise {} --calibration DATA.npz"


def remedy(model: str, executable: Executable) -> str | None:
    """Why less than half of the multiply-accumulates of a network are on the device, and what to do about it.

    `model` is the file or FILE.py:NAME that `executable` was made of. None where the device has enough of them, and
    for what is no network. A network without any multiply-accumulates has a remedy if all of it is float.
    """
    share, in_float = share_on_device(executable), {*float_steps(executable)}
    if executable.contract is None or (share or 0) >= _ENOUGH:
        return None
    if share is None:
        if executable.launches or not in_float:
            return None
        begin = "no operator is on the device"
    else:
        begin = f"{100 * share:.0f} % of the multiply-accumulates are on the device"
    steps = [step for step in executable.steps if isinstance(step, HostStep)]
    if 2 * sum(step.macs for step in steps if step.name in in_float) >= sum(step.macs for step in steps):
        return f"{begin}, as {_float_network(model)}"
    largest = max(steps, key=lambda step: step.macs)
    network = "NET, the network it was compiled from," if model.endswith(".tw") else model
    return f"{begin}, as the host computes {largest.name!r} and others; tilewright assign {network} says why of each"


def _float_network(model: str) -> str:
    """Why the operators of `model` are float, and the command."""
    if model.endswith(".tw"):
        return f"{model} was compiled from a float network: quantise that, {_QUANTISE.format('NET.onnx')}"
    if not is_network(model):
        return f"{model} makes a graph of float32 operators; make one of int8 operators"
    if kind_of(model) == ".onnx":
        from ..apps.quantise.onnx_float import float_form
        from ..apps.quantise.onnx_network import quantised_operators

        if kinds := quantised_operators(float_form(read_source(model).onnx())):
            what = f"{model} is quantised in part ({', '.join(kinds)})"
            return f"{what}: quantise the float network it was made from, {_QUANTISE.format('NET.onnx')}"
    return f"{model} is a float network: {_QUANTISE.format(model)}"


def say_remedy(text: str | None) -> None:
    """Print the sentence of `remedy`, if there is one."""
    if text is not None:
        report.say(text)
