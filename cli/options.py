"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable

import click

from ..runtime.registry import CIRCUITS, describe_devices, device_entry

DEFAULT_CONFIG = "pynq_z1"
TIMED = ("timing", *CIRCUITS)  # devices whose memory `--dram` describes

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
contract_option = click.option(
    "--contract",
    type=click.Choice(["double", "single"]),
    help="How networks round: twice, as TensorFlow Lite Micro does, or once, as onnxruntime. [the format's]",
)
tiles_option = click.option(
    "--tiles", metavar="DB", help="For networks: use the tiles that `tilewright tune` found, where they help."
)
mapping_option = click.option(
    "--mapping", metavar="FILE", help="For networks: which output channels run on which compute unit, .json."
)
target_option = click.option(
    "--target",
    metavar="FILE.py:NAME",
    help="For networks: kernels of `tw.kernel`, or modules, that stand beside those that are there; or a whole target.",
)
skip_option = click.option(
    "--skip",
    multiple=True,
    type=click.Choice(["gemm", "alu", "dma"]),
    help="With --on timing: units whose work takes no time; may be given several times.",
)
dram_option = click.option(
    "--dram",
    metavar="NAME|FILE",
    help="The memory of timing and rtl: preset or JSON file, and fields: zynq_hp4,latency=80. What is compiled for "
    "them gets tiles for it. [zynq_hp]",
)
memory_option = click.option(
    "--dram", metavar="NAME|FILE", help="The memory that tiles are chosen for, as --dram of run has it. [zynq_hp]"
)
batch_option = click.option(
    "--batch",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="For networks: inputs that a run takes.",
)
scheduler_option = click.option(
    "--scheduler", metavar="tcp://HOST:PORT", help="Work on the workers of this Dask scheduler instead."
)
waves_option = click.option("--waves", metavar="FILE", help="With --on rtl: write waveforms to FILE.fst or FILE.vcd.")


def device_option(default: str = "model", help_text: str = "What executes the program:") -> Callable:
    """`--on`; `help_text` goes before the list of devices."""
    text = f"{help_text} {describe_devices()}."
    return click.option("--on", "device", default=default, show_default=True, metavar="DEVICE", help=text)


def device_options(
    device: str, waves: str | None, skip: tuple[str, ...] = (), dram: str | None = None
) -> dict[str, object]:
    """Options of `open_device`. Raises `UnsupportedError` for an unknown device, or one that lacks the option, and the
    errors of `load_dram`.
    """
    from ..hw.errors import UnsupportedError

    device_entry(device)
    if skip and device != "timing":
        raise UnsupportedError(f"--skip {skip[0]}: device {device!r} executes everything; use --on timing")
    if waves is not None and device not in CIRCUITS:
        raise UnsupportedError(f"--waves {waves}: device {device!r} has no waveforms; use --on rtl")
    options: dict[str, object] = {"skip": frozenset(skip)} if skip else {}
    if waves is not None:
        options["waves"] = waves
    if dram is not None:
        if device not in TIMED:
            what = "has a memory of its own" if device == "board" else "counts no cycles"
            raise UnsupportedError(f"--dram {dram}: device {device!r} {what}; use --on {' or '.join(TIMED)}")
        from ..sim.dram import load_dram

        options["dram"] = load_dram(dram)
    return options


def config_option(default: str | None = DEFAULT_CONFIG, help_text: str = "") -> Callable:
    """`--config`; None as `default` lets the verb decide."""
    text = help_text or "Preset, VTA configuration string, or JSON file of configuration fields."
    return click.option("--config", default=default, show_default=default is not None, metavar="NAME|FILE", help=text)
