"""The second way to a program: kernels that are recorded instruction by instruction, without a schedule.

A kernel belongs here where a schedule would take more cycles or many more instructions. It is a function `lower(rec,
op, ...)` that appends to `rec.program`. Its scratchpad entries come from on_chip.py, its estimates from
compiler/cost.py; dependence tokens, checks and devices are those of every program (docs/schedules.md, "Two ways").

Why these are not TVM schedules today:

- folded_conv.py, convolutions of few channels: which input entry holds which tap is a table (fold.py), not an affine
  function of loops. A schedule would have a statement per term, which becomes an instruction per term.
- depthwise_rows.py, depthwise layers: rows that two tiles need are loaded once and stay where they are. A tensor of a
  schedule has one place on chip, and a row of its tile lies behind the one before. The timing model says where a
  schedule is faster (compiler/accelerator/depthwise.py).
"""
