"""compiler/frontend/onnx/rewrites/chain.py"""

import numpy as np
from onnx import TensorProto, helper

from tilewright.compiler.frontend.core import Node
from tilewright.compiler.frontend.onnx.nodes import Chain, Reader


def test_nodes_that_take_the_place_of_one():
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6])
    model = helper.make_model(helper.make_graph([], "net", [x], []))
    reader, node = Reader(model, {}), Node("Foo", "foo", ["x"], ["y", "", "z"])
    chain = Chain(reader, node)
    part = chain.slice("x", 1, 2, 4)
    rows = chain.reshape(part, 4, 1)
    for output in node.outputs:
        chain.write(output, "Neg", rows)
    assert [(n.op, n.name, n.outputs) for n in chain.nodes[2:]] == [("Neg", "foo.y", ["y"]), ("Neg", "foo.z", ["z"])]
    assert [reader.constants[t].tolist() for t in chain.nodes[0].inputs[1:]] == [[2], [4], [1]]
    assert reader.constants[chain.nodes[1].inputs[1]].tolist() == [4, 1]
    last = chain.add("Add", rows, np.ones(1, np.float32))
    assert chain.finish()[-1].name == "foo" and last not in chain.nodes[-1].outputs == ["y"]
