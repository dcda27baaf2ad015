"""`tilewright bench`: speed and profile of the behavioural model, or cycles of the circuit, a module per workload."""

from __future__ import annotations

import importlib
import os

import click

from ...hw.config import load_config
from ..main import THREAD_VARIABLES
from ..options import config_option, device_option, device_options, dram_option, json_option, skip_option
from ..profile import Profile, profile_option

# workload -> module whose `run` measures it; numpy is imported only there, after the number of threads is set
WORKLOADS = {
    "resnet18": "resnet18",
    **{f"{network}-{rows}": "transformers" for network in ("mobilebert", "albert") for rows in (384, 128)},
    "mobilebert-layer": "transformers",
    "split": "two_units",
    "resnet8-units": "two_units",
    "resnet8x4-units": "two_units",
}
DEFAULT = "convolutions"  # without a workload


@click.command()
@click.argument("workload", required=False, type=click.Choice([*WORKLOADS]))
@click.option("--layer", "layers", multiple=True, metavar="NAME", help="Only this layer; may be given several times.")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1), help="Threads of matrix products.")
@device_option()
@skip_option
@dram_option
@config_option()
@click.option(
    "--compare",
    multiple=True,
    type=click.Choice(["threads", "tiles"]),
    help="With resnet18: virtual threads on against off; searched tiles against the largest that fit.",
)
@click.option(
    "--out",
    metavar="FOLDER",
    help="With resnet18: write layers.csv and, where cycles are known, roofline.png, roofline.svg and timeline.json.",
)
@profile_option
@json_option
def command(
    workload: str | None,
    layers: tuple[str, ...],
    threads: int,
    device: str,
    skip: tuple[str, ...],
    dram: str | None,
    config: str,
    compare: tuple[str, ...],
    out: str | None,
    profiles: tuple[str, ...],
    as_json: bool,
) -> int:
    """Measure model or circuit on the convolutions C2 to C12 of ResNet-18, batch 1, with our own schedules.

    A layer is compiled once. The behavioural model replays the recorded program, and the time is the best of 5
    replays, without compiling and without moving data in and out. The circuit (`--on rtl`) runs it once: its cycles,
    and the share of them in which all multipliers do useful work. `exact` is true if every output equals an exact
    computation in numpy. The exit status is 0 only if all are.

    `bench resnet18` measures all layers of the network instead, requantised, `--on timing` or `--on rtl`: cycles,
    utilisation, what bounds the layer, the roofline (GEMM, loads and stores at full speed, each tensor moved once), and
    VTA's published times. `--compare` adds the cycles of other schedules on the same circuit, by the timing model.

    `bench mobilebert-384` and the like measure the dense layers of a transformer on so many rows, each shape once: one
    launch, its cycles times the number of such layers. `bench mobilebert-layer` measures a whole layer of one.

    `bench resnet8-units` measures a network of ResNet8's shape by the share of channels on the second compute unit,
    `bench resnet8x4-units` one of four times the channels; --layer chooses points.

    `bench split --config pynq_z1_two` measures layers whose channels units GEMM and ternary divide, half and half, and
    the same layers on GEMM alone.
    """
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(threads)
    from .measure import Bench

    options = device_options(device, None, skip, dram)
    cfg = load_config(config)
    if (compare or out) and workload != "resnet18":
        raise click.UsageError("--compare and --out need a workload: tilewright bench resnet18")
    profile = Profile(profiles, device, {"--config": config})
    chosen = workload or DEFAULT
    bench = Bench(cfg, device, options, profile, chosen, as_json, threads, compare, out)
    module = importlib.import_module(f".{WORKLOADS.get(chosen, DEFAULT)}", __package__)
    return int(not module.run(bench, layers))
