"""Programs with state, with addresses that depend on inputs, and with steps of some runs, in C; texts in C."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.runtime.c.shim import run
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import Executable
from tilewright.runtime.language import Tokenizer, language_model
from tilewright.runtime.loader import Loaded
from tilewright.runtime.sampling import Sampling
from tilewright.runtime.steps import HostStep, LaunchStep, Step, Tensor, When
from tilewright.runtime.writing import Text

most_likely = Sampling().chooser(0)

STORIES = Path(__file__).parents[5] / "shared" / "models" / "stories260K"
PROMPTS = ("Once upon a time", "", "Zoë saw 3 cats", "\n\t<0x41> x")


def number(value):
    return np.array([value], np.int32)


def test_a_state_in_place_at_a_position(cache, same_as_loader):
    case = cache()
    executable = Executable.from_launch(case.launch)
    positions = [3, 0, 15, 4, 4, 7, 12]
    same_as_loader(executable, [case.inputs(p, p - 8) for p in positions])


@pytest.mark.slow
def test_a_position_outside_is_refused(cache, build):
    executable = Executable.from_launch(cache().launch)
    folder = build(executable)
    x = np.zeros(executable.tensors["x"].shape, np.int32)
    for position, status in ((15, 0), (16, 1), (-1, 1)):
        values = {"x": x.tobytes(), "position": number(position).tobytes()}
        given = b"".join(values[t.name] for t in executable.inputs)
        assert run([folder / "build/sim/main"], open_device("model", executable.cfg), given)[0] == status


TWICE = """
#include <stdio.h>
#include "network.h"

static int32_t x[4][NETWORK_INPUT_X], position[4][NETWORK_INPUT_POSITION];
static int8_t y[NETWORK_OUTPUT_Y];

static int all(void)
{
    int status = 0;
    for (int k = 0; k < 4 && status == 0; k++) {
        status = network_run(position[k], x[k], y);
        fwrite(y, sizeof y, 1, stdout);
    }
    return status;
}

int main(void)
{
    int status = network_run(position[0], x[0], y) == TW_CLOSED ? network_open(network_program) : 1;
    for (int k = 0; k < 4; k++)
        if (fread(position[k], sizeof position[k], 1, stdin) != 1 || fread(x[k], sizeof x[k], 1, stdin) != 1)
            return 1;
    if (status == 0)
        status = all();
    network_reset();
    if (status == 0)
        status = all();
    return status != 0 || network_open(network_program) != 0 || all() != 0;
}
"""


def test_a_reset_and_a_network_that_is_opened_again(cache, build):
    case = cache()
    executable = Executable.from_launch(case.launch)
    folder = build(executable, flags="-O1")
    (folder / "twice.c").write_text(TWICE)
    command = ["gcc", "-std=c99", f"-I{folder}", folder / "twice.c", f"-L{folder / 'build/sim'}", "-lnetwork"]
    subprocess.run([*command, "-o", folder / "twice"], check=True)
    cases = [case.inputs(position, position) for position in (2, 5, 1, 3)]
    given = b"".join(each[t.name].tobytes() for each in cases for t in executable.inputs)
    status, found = run([folder / "twice"], open_device("model", executable.cfg), given)
    once = b"".join(case.expect(position, position).astype(np.int8).tobytes() for position in (2, 5, 1, 3))
    assert status == 0 and found == 3 * once


def of_two_lengths(cache):
    """A program whose launch depends on the position, and whose states of the host take each other's values."""
    cases = [cache(limit, name=f"cache{limit}") for limit in (16, 16)]
    tensors = dict(Executable.from_launch(cases[0].launch).tensors)
    tensors |= {
        "first": Tensor("first", (1,), "int32", "state", number(5), "second"),
        "second": Tensor("second", (1,), "int32", "state", number(7), "first"),
        "seen": Tensor("seen", (1,), "int32", "output"),
    }
    names = ("x", "y", "rows")
    steps: list[Step] = [
        LaunchStep(
            f"launch{k}",
            case.launch,
            {name: name for name in names},
            symbols={"position": "position"},
            when=When("position", 8 * k, 8 * k + 8),
        )
        for k, case in enumerate(cases)
    ]
    steps.append(HostStep("seen", "reshape", ["first"], ["seen"], {"shape": [1]}))
    return Executable(cases[0].cfg, "lengths", tensors, steps), cases[0]


@pytest.mark.slow
def test_steps_of_some_runs_and_states_that_change_places(cache, same_as_loader):
    executable, case = of_two_lengths(cache)
    found = same_as_loader(executable, [case.inputs(p, p) for p in (0, 9, 3, 15, 8)])
    assert found["seen"].reshape(-1).tolist() == [5, 7, 5, 7, 5]


@pytest.fixture(scope="module", params=["pynq_z1_plus", "pynq_z1"])
def stories(request):
    """A language model whose steps are one launch, and one whose attention the host computes."""
    if not (STORIES / "stories260K.bin").is_file():
        pytest.skip("../shared/models/stories260K is missing")
    pytest.importorskip("tvm")
    from tilewright.compiler.network import compile_model

    return compile_model(STORIES / "stories260K.bin", PRESETS[request.param])


@pytest.mark.slow
def test_the_text_is_that_of_generate(stories, build):
    tokenizer = Tokenizer(STORIES / "tok512.bin", 512)
    folder = build(stories, "story", tokenizer=STORIES / "tok512.bin")
    for prompt in PROMPTS[: 4 if stories.cfg.name == "pynq_z1_plus" else 1]:
        tokens = [*tokenizer.begin, *tokenizer.encode(prompt)]
        count = len(tokens) + 11
        with Loaded(stories, open_device("model", stories.cfg)) as loaded:
            text = Text(loaded, language_model(stories))
            text.begin(tokens)
            steps = [*text.write(count, most_likely, tokenizer.ends)]
        tokens = tokens[:1] + [token for s in steps for token in (*s.tokens[1:], s.following) if token]
        status, found = run(
            [folder / "build/sim/main_generate", prompt, str(count)], open_device("model", stories.cfg), b""
        )
        assert status == 0
        assert found == b"".join(map(tokenizer.piece, tokens, tokens[1:])) + b"\n"

    for arguments in (["x" * 600], ["x", "1"], ["x", "513"]):  # texts that do not fit
        command = [folder / "build/sim/main_generate", *arguments]
        assert run(command, open_device("model", stories.cfg), b"") == (1, b"")
    alone = subprocess.run(command[:1], capture_output=True, text=True)
    assert alone.returncode == 1 and "tilewright.runtime.c.shim" in alone.stderr
