"""The page of `tilewright quantise`: accuracy of all ways and operators, and where the int8 network runs."""

from __future__ import annotations

from typing import Any

from ...apps.quantise.result import ways_table
from .page import document, html_table, note, tiles

_OPERATORS = (
    "Signal to noise of each result against that of the float network on the same samples, and how much lower it is "
    "than that of the worst of the operator's inputs. What loses much may stay in float: --keep NAME."
)


def quantised_page(facts: dict[str, Any]) -> str:
    """The document of what `tilewright quantise --json` prints."""
    losses = sorted(facts["operators"], key=lambda loss: -loss["lost_db"])
    modelled = f"modelled, {facts['config']}"
    figures = [
        ("Signal to noise", f"{facts['snr_db']:.1f} dB", "int8 against float, all outputs"),
        *(
            (name, "" if facts[key] is None else f"{100 * facts[key]:.1f} %", source)
            for name, key, source in (
                ("Same class", "agreement", "as the float network"),
                ("Right in float", "float_accuracy", "by the labels"),
                ("Right in int8", "int8_accuracy", "by the labels"),
            )
        ),
        ("Time in float", _ms(facts["float"]), "modelled, host"),
        ("Time in int8", _ms(facts["int8"]), modelled),
        ("MACs on the accelerator", _percent(facts["int8"]["on_device"]), modelled),
    ]
    reasons = [(method, why) for method, why in facts["not_used"].items()]
    reasons += [(f"time in {name}", facts[name]["why"]) for name in ("float", "int8") if "why" in facts[name]]
    placement = facts["placement"]
    sections = [
        ("ways", "Ways that were tried", html_table(*ways_table(facts))),
        ("missing", "What is missing", html_table(("what", "why"), reasons) if reasons else ""),
        (
            "operators",
            "Operators, those that lose most first",
            note(_OPERATORS)
            + html_table(("operator", "kind", "SNR dB", "lost dB"), [[*loss.values()] for loss in losses]),
        ),
        (
            "placement",
            "Where they run after quantisation",
            html_table([*placement[0]], [[*row.values()] for row in placement]) if placement else "",
        ),
    ]
    names = [*facts["kept"], *facts["in_float"]]
    kept = f" In float: {', '.join(names)}." if names else ""
    subtitle = (
        f"From {facts['model']}, {facts['way']}, on {facts['samples']:,} samples.{kept} {' '.join(facts['notes'])}"
    )
    return document(f"{facts['network']} in int8", subtitle, tiles(f for f in figures if f[1]), sections, data=facts)


def _ms(time: dict[str, Any]) -> str:
    return "" if time["ms"] is None else f"{time['ms']:,.1f} ms"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"
