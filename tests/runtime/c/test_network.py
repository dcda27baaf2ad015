"""runtime/c/network.py: what the generated functions hold, in which order, for programs made by hand."""

import re

import numpy as np

from tilewright.hw.config import PRESETS
from tilewright.runtime.c.network import Network
from tilewright.runtime.executable import Executable
from tilewright.runtime.steps import HostStep, Tensor, When

CFG = PRESETS["tiny"]


def lines(text, function):
    """The lines of the body of a function."""
    (body,) = re.findall(rf"^\w+ {function}\(.*?\)\n{{\n(.*?)^}}", text, re.DOTALL | re.MULTILINE)
    return [line.strip() for line in body.splitlines()]


def moves(states, steps, extra=()):
    """A program of the host: tensors of int8 (2,), x in and y out."""
    tensors = {"x": Tensor("x", (2,), "int8", "input"), "y": Tensor("y", (2,), "int8", "output")}
    tensors |= {t.name: t for t in (*states, *extra)}
    made = [HostStep(f"{a} to {b}", "reshape", [a], [b], {"shape": [2]}, when=when) for a, b, when in steps]
    return Executable(CFG, "moves", tensors, [*made])


def kept(name, after, first=(0, 0)):
    return Tensor(name, (2,), "int8", "state", np.array(first, np.int8), after)


def test_a_launch(cache):
    found = Network(Executable.from_launch(cache().launch), "network")
    text, run = found.source(), lines(found.source(), "network_run")
    order = (
        "TW_CLOSED",
        "TW_BAD_INPUT",
        "memcpy",
        "tw_redirect",
        "tw_platform_write_back",
        "tw_run",
        "tw_platform_inv",
    )
    places = [next(k for k, line in enumerate(run) if word in line) for word in order]
    assert places == sorted(places) and "if (input_position[0] < 0 || input_position[0] >= 16)" in run
    assert text.count("static const tw_patch ") == 1 and "held[1];" in text
    assert not any("rows" in line for line in run)  # only launches use the state
    assert "void network_reset(void);" in found.header()
    assert found.signature == "const int32_t *input_position, const int32_t *input_x, int8_t *output_y"


def test_states_are_taken_at_the_end_and_set_aside_where_they_change_places():
    program = moves([kept("a", "b", (1, 2)), kept("b", "a"), kept("c", "y")], [("x", "y", None)])
    found = Network(program, "network")
    copies = [line for line in lines(found.source(), "network_run") if line.startswith("memcpy")]
    assert [line.split(",")[0] for line in copies] == [
        "memcpy(scratch + 0",
        "memcpy(scratch + 8",
        "memcpy(t2",
        "memcpy(t3",
        "memcpy(t4",
    ]
    assert copies[-1] == "memcpy(t4, output_y, 2u);"
    reset = lines(found.source(), "network_reset")
    assert "memcpy(t2, t2_first, 2u);" in reset and "memset(t3, 0, 2u);" in reset
    assert "1, 2," in found.source()


def test_steps_of_some_runs_stand_in_one_block():
    number = Tensor("n", (1,), "int32", "input")
    early, late = When("n", 0, 3), When("n", 3, 9)
    temps = [Tensor(name, (2,), "int8") for name in ("s", "t")]
    steps = [("x", "s", early), ("s", "y", early), ("x", "t", late), ("t", "y", late)]
    run = lines(Network(moves([], steps, [number, *temps]), "network").source(), "network_run")
    assert [line for line in run if line.startswith("if (input_n[0]")] == [
        "if (input_n[0] < 0 || input_n[0] >= 9)",
        "if (input_n[0] >= 0 && input_n[0] < 3) {",
        "if (input_n[0] >= 3 && input_n[0] < 9) {",
    ]


def test_names_that_c_cannot_have():
    tensors = {"x/int": Tensor("x/int", (2,), "int8", "input"), "x int": Tensor("x int", (2,), "float32", "output")}
    step = HostStep("d */", "dequantize", ["x/int"], ["x int"], {"scale": 0.5, "zero_point": 0})
    found = Network(Executable(CFG, "n */ m", tensors, [step]), "net")
    assert found.signature == "const int8_t *input_x_int, float *output_x_int"
    assert "#define NET_OUTPUT_X_INT 2 /* output x int: float32 (2,) */" in found.header()
    for text in (found.source(), found.header(), found.program()):
        assert text.count("/*") == text.count("*/")


def test_names_that_are_one_in_c_get_numbers():
    names = ["X", "x", "a-b", "a b", "a_b_2", ""]
    tensors = {name: Tensor(name, (2,), "int8", "input") for name in names}
    step = HostStep("s", "concatenate", names, ["y"], {"axis": 0})
    tensors["y"] = Tensor("y", (12,), "int8", "output")
    found = Network(Executable(CFG, "names", tensors, [step]), "net")
    wanted = ["input_X", "input_x_2", "input_a_b", "input_a_b_2", "input_a_b_2_2", "input_x_3", "output_y"]
    assert [*found.arguments.values()] == wanted
    defined = re.findall(r"#define (\w+)", found.header())
    assert len(defined) == len(set(defined))


def test_constants_that_no_step_reads_and_names_in_comments_alone_are_left_out():
    unread = Tensor("unread", (2,), "int8", "constant", np.zeros(2, np.int8))
    temps = [Tensor(name, (2,), "int8") for name in ("t9", "scratch", "status")]
    steps = [("x", "t9", None), ("t9", "scratch", None), ("scratch", "status", None), ("status", "y", None)]
    text = Network(moves([], steps, [unread, *temps]), "network").source()
    assert "static const int8_t" not in text
    run = lines(text, "network_run")
    assert not [line for line in run if line.startswith(("int status", "uint8_t *const scratch"))]
