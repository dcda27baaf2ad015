"""`tilewright serve`: serves a device over the network."""

from __future__ import annotations

import signal
from dataclasses import asdict

import click

from ..boards.credentials import read_token
from ..boards.server import PORT, Server
from ..boards.worker import Limits, Offer
from ..hw.config import load_config
from ..hw.errors import ConfigError
from . import report
from .options import (
    bitstream_option,
    board_options,
    clock_option,
    config_option,
    device_option,
    device_options,
    dram_option,
    json_option,
    need_grpc,
    on_board_option,
    read_pem,
)

MEGA = 1 << 20
MEMORY = 512 * MEGA  # bytes of a simulated device: a PYNQ-Z1's


@click.command()
@device_option("board", "The device to serve:")
@click.option("--listen", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="Its port; 0: any free one. [50177]")
@click.option(
    "--token-file",
    metavar="FILE",
    help="Token that clients must send; required unless ADDRESS is local, which has a new one in a file of its own.",
)
@click.option("--tls-cert", metavar="FILE", help="Certificate, PEM; required, with its key, unless ADDRESS is local.")
@click.option("--tls-key", metavar="FILE", help="Private key of the certificate, PEM.")
@click.option(
    "--max-mb",
    type=click.IntRange(1),
    metavar="N",
    help="Largest request, reply and unpacked program. [a 16th of the machine's memory, at most 64]",
)
@click.option(
    "--memory-mb",
    type=click.IntRange(1),
    metavar="N",
    help="Most memory of a job, besides the device's. [half of the machine's memory, at most 4096]",
)
@click.option(
    "--max-seconds", default=60.0, show_default=True, type=click.FloatRange(0.1), metavar="S", help="Longest job."
)
@click.option("--queue", default=16, show_default=True, type=click.IntRange(1), metavar="N", help="Jobs that may wait.")
@click.option(
    "--idle-seconds",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0.1),
    metavar="S",
    help="Longest silence in a request.",
)
@bitstream_option
@clock_option
@on_board_option
@dram_option
@config_option()
@json_option
def command(
    device: str,
    listen: str,
    port: int | None,
    token_file: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    max_mb: int | None,
    memory_mb: int | None,
    max_seconds: float,
    queue: int,
    idle_seconds: float,
    bitstream: str | None,
    clock: float | None,
    board: str | None,
    dram: str | None,
    config: str,
    as_json: bool,
) -> None:
    """Serve a device: run the programs that `tilewright run --on board --host NAME` sends, one at a time.

    Without a token, a certificate and its key it serves this machine only, and only the user who started it: its token
    is in a file that clients of that user find. Ctrl-C ends it.
    """
    need_grpc()
    options = device_options(device, None, dram=dram) | board_options(device, bitstream, clock, board)
    options |= {"timeout": max_seconds} if device == "board" else {"capacity": MEMORY}
    if (tls_cert is None) != (tls_key is None):
        raise ConfigError("--tls-cert and --tls-key: give both or neither")
    tls = (read_pem(tls_cert), read_pem(tls_key)) if tls_cert and tls_key else None
    token = read_token(token_file) if token_file else ""
    cfg = load_config(config)
    sizes = _bytes(max_bytes=max_mb, max_memory=memory_mb)
    limits = Limits(max_seconds=max_seconds, queue=queue, idle_seconds=idle_seconds, **sizes)
    chosen = PORT if port is None else port
    server = Server(Offer(device, cfg, options), host=listen, port=chosen, token=token, tls=tls, limits=limits)
    with report.progress(f"opening {device}"):
        server.start()
    guard = "token, TLS" if tls else "token"
    facts = {"device": device, "config": cfg.name, "address": listen, "port": server.port, "guard": guard}
    kept = token_file or str(server.token_file)
    if as_json:
        report.emit_json(facts | {"token_file": kept, "limits": asdict(limits) | {"held_bytes": limits.held_bytes}})
    else:
        report.say(f"serving {device} ({cfg.name}) at {listen}:{server.port}, {guard}; end with Ctrl-C")
        report.say(f"the token is in {kept}")
        report.say(_shown(limits))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a service manager ends it so: like Ctrl-C
    try:
        server.wait()
    except KeyboardInterrupt:
        pass
    finally:
        server.stop()


def _bytes(**megabytes: int | None) -> dict[str, int]:
    """The limits that are given, in bytes."""
    return {name: size * MEGA for name, size in megabytes.items() if size is not None}


def _shown(limits: Limits) -> str:
    """The server's limits, in one line."""
    return (
        f"a request has up to {limits.max_bytes / MEGA:,.0f} MB, all that wait {limits.held_bytes / MEGA:,.0f} MB; "
        f"a job {limits.max_memory / MEGA:,.0f} MB and {limits.max_seconds:g} s; {limits.queue} jobs wait; "
        f"a request that brings nothing ends after {limits.idle_seconds:g} s"
    )
