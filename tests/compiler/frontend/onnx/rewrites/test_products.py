"""Sums of products: each against onnxruntime."""

import numpy as np
import pytest


@pytest.mark.parametrize(
    "equation, shapes",
    [
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("bhid,bhjd->bhij", [(1, 2, 3, 4), (1, 2, 5, 4)]),
        ("nctv,vw->nctw", [(1, 3, 4, 5), (5, 5)]),
        ("i,j->ji", [(3,), (4,)]),
        ("ijk,kl", [(2, 3, 4), (4, 5)]),
        ("bij,cj->cib", [(2, 3, 4), (5, 4)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
        ("...ij->...ji", [(2, 3, 4)]),
        ("...ij,jk", [(2, 3, 4), (4, 5)]),
        ("abc->ca", [(2, 3, 4)]),
    ],
)
def test_sums_of_products(m, compared, equation, shapes):
    operands = [m.input(f"x{k}", list(shape)) for k, shape in enumerate(shapes)]
    m.output(m.node("Einsum", *operands, equation=equation))
    compared(m, 1e-5)


@pytest.mark.parametrize(
    "equation, shapes",
    [("ii->i", [(3, 3)]), ("i,i,i->i", [(3,)] * 3), ("ij,jk->ik", [(2, 1), (4, 5)]), ("ij,ij->", [(3, 4)] * 2)],
)
def test_other_sums_of_products(m, refusal, equation, shapes):
    operands = [m.input(f"x{k}", list(shape)) for k, shape in enumerate(shapes)]
    m.output(m.node("Einsum", *operands, equation=equation, name="bad"))
    assert "Einsum 'bad' has inputs or attributes that are not supported" in refusal(m.save())


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("attrs", [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}])
def test_running_sums(m, compared, axis, attrs):
    m.output(m.node("CumSum", m.input("x", [2, 3, 4]), m.const(np.array(axis)), **attrs))
    compared(m, 1e-5)


@pytest.mark.parametrize("upper, k", [(1, None), (0, 1), (1, -1)])
def test_triangles(m, compared, upper, k):
    m.output(m.node("Trilu", m.input("x", [2, 3, 4]), *([] if k is None else [m.const(np.array(k))]), upper=upper))
    compared(m)


@pytest.mark.parametrize("first, second", [((3, 8), (8,)), ((8,), (8, 5)), ((8,), (2, 8, 5)), ((2, 3, 8), (8,))])
@pytest.mark.parametrize("constant", [False, True])
def test_products_by_a_row_or_a_column(m, compared, first, second, constant):
    x = m.quantise(m.input("x", list(first)))
    y = m.const(m.rng.normal(0, 1, second).astype(np.float32)) if constant else m.input("y", list(second))
    m.output(m.node("MatMul", x, y))
    compared(m, 1e-4)
