"""Which caches are written in place, and which inputs are symbols."""

from dataclasses import replace

import numpy as np

from tilewright.compiler.accelerator.launch import refused_states as refused
from tilewright.compiler.accelerator.launch import state_of
from tilewright.compiler.graph import Gather, Graph, Requantize, State, Tensor, WriteRows
from tilewright.hw.config import PRESETS


def tensor(name, *shape):
    return Tensor(name, shape, scale=0.05)


POSITION, CACHE, ROW = Tensor("position", (1,), "int32"), tensor("cache", 1, 20, 16, 1), tensor("row", 1, 20)
WRITE = WriteRows("write", (CACHE, ROW, POSITION), tensor("written", 1, 20, 16, 1))
READ = Requantize("read", (WRITE.output,), tensor("y", 1, 20, 16, 1))
STATE = State(CACHE, np.arange(320, dtype=np.int16).astype(np.int8).reshape(CACHE.shape), WRITE.output)
GRAPH = Graph("g", (ROW, POSITION), (READ.output,), (WRITE, READ), (STATE,))


def test_a_state_that_only_its_write_reads():
    assert refused(GRAPH, GRAPH.ops) == {}


def test_caches_that_are_no_states():
    graph = replace(GRAPH, inputs=(*GRAPH.inputs, CACHE), states=())
    assert refused(graph, graph.ops) == {"write": "'cache' is no state that becomes its output"}


def test_caches_whose_former_values_are_read():
    before = Requantize("before", (CACHE,), tensor("z", 1, 20, 16, 1))
    graph = replace(GRAPH, ops=(before, *GRAPH.ops))
    assert refused(graph, graph.ops) == {"write": "the values of 'cache' before it are read, too"}


def test_caches_whose_values_another_state_takes():
    """Neither what it held before a run nor what it holds then is elsewhere when the run ends."""
    for new in (CACHE, WRITE.output):
        second = State(replace(CACHE, name="second"), STATE.initial, new)
        graph = replace(GRAPH, states=(STATE, second))
        assert refused(graph, graph.ops) == {"write": "state 'second' takes its values, too"}


def test_caches_that_another_part_reads():
    assert refused(GRAPH, [WRITE]) == {"write": "'written' is read elsewhere"}


def test_symbols_that_are_computed():
    table = Tensor("words", (4, 16), scale=0.05, data=np.zeros((4, 16), np.int8))
    token = Tensor("token", (1,), "int32")
    op = Gather("row", (table, token), tensor("y", 1, 16), 0)
    assert refused(Graph("g", (token,), (op.output,), (op,)), [op]) == {}
    assert refused(GRAPH, [op]) == {"row": "'token' is no input of the network"}


def test_the_state_of_an_executable_is_packed_and_its_own_next():
    state = state_of(GRAPH, CACHE, PRESETS["pynq_z1"])
    assert (state.shape, state.kind, state.next) == ((1, 2, 16, 1, 1, 16), "state", "cache")
    assert state.data is not None and state.data[0, 1, 3, 0, 0, :4].tolist() == STATE.initial[0, 16:, 3, 0].tolist()
