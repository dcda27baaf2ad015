"""Which accelerator should it be?
===============================

A configuration is a set of fields, and everything follows from it: instruction words, tiles, models, circuit. So a
question about the hardware is a loop. This page changes fields by hand, and then lets a search do it. Cycles are
simulated by the timing model; block RAMs are those that synthesis makes of the sizes; LUTs are a fit to what it
counts.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import tilewright as tw

ROOT = next(path for path in (Path.cwd(), *Path.cwd().parents) if (path / "examples" / "digits").is_dir())
NETWORK = ROOT / "examples" / "digits" / "digits.onnx"
image = np.load(ROOT / "examples" / "digits" / "inputs.npz")["inputs"][0]
base = tw.load_config("pynq_z1")

# %%
# One field
# ---------
# The base, in a notebook.

tw.load_config("pynq_z1")

# %%
# Four accelerators on one network that reads handwritten digits. The digit stays the same: whatever you choose, results
# are exact, and only cycles and area change.

small = {"block_in": 8, "block_out": 8, "inp_bytes": 16384, "wgt_bytes": 65536, "acc_bytes": 65536}
lean = {"uop_bytes": 4096, "inp_bytes": 16384, "wgt_bytes": 32768, "acc_bytes": 16384}
changes = {"base": {}, "8x8": small, "lean": lean, "lean 8x8": small | lean}
cycles = {}
for name, fields in changes.items():
    cfg = base.replace(name=name, **fields)
    outputs, stats = tw.load(NETWORK, cfg).run(image, on="timing")
    cycles[name] = stats.cycles
    digit = outputs["logits"].argmax()
    print(f"{name}: {cfg.macs_per_cycle} products per cycle, {stats.cycles:,} cycles, digit {digit}")

# %%
plt.figure(figsize=(6, 2.5))
plt.barh(list(cycles), list(cycles.values()))
plt.gca().invert_yaxis()
plt.xlabel("cycles, simulated")
plt.tight_layout()

# %%
# Let it search
# -------------
# ``tilewright explore`` tries configurations, keeps every result in a database, and prints those that no other beats.
# Twelve trials are a taste; sixty or more make a front. The result is JSON.

study = f"sqlite:///{Path(tempfile.mkdtemp()) / 'study.db'}"
command = [Path(sys.executable).with_name("tilewright"), "explore", NETWORK, "--trials", "12", "--json"]
done = subprocess.run([*command, "--study", study], capture_output=True, text=True, check=True)
found = json.loads(done.stdout)
print(found["trials"], "trials of", found["combinations"], "combinations,", len(found["pruned"]), "pruned")

# %%
# The front in two of its dimensions: cycles of a digit, and block RAMs of the core.

plt.figure(figsize=(6, 3.5))
for key, label, colour in (("every", "tried", "lightgrey"), ("front", "on the front", "C0")):
    rows = found[key]
    plt.scatter([row["bram"] for row in rows], [row["cycles"] for row in rows], color=colour, label=label)
plt.xlabel("block RAMs")
plt.ylabel("cycles, simulated")
plt.legend()
plt.tight_layout()

# %%
# The fewest block RAMs
# ---------------------
# A row of the front has its configuration, which every other command takes as a file.

least = min(found["front"], key=lambda row: row["bram"])
mine = tw.Config.from_dict(least["config"]).replace(name="mine")
changed = {key: value for key, value in mine.to_dict().items() if value != base.to_dict().get(key)}
print(f"{least['bram']:g} block RAMs, {least['lut']:,} LUTs by a fit, {least['cycles']:,} cycles:", changed)

# %%
# And its report.

tw.report(NETWORK, mine)
