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
- repeat.py and resize.py, enlarged images: a stage of a schedule has one place per element. Four stages, one per phase,
  would be stored apart, pixel by pixel.
- max_pool.py, maxima over windows: the pixels are sorted into two banks so that the ALU reads both operands in one
  cycle, and only the results are double-buffered. A schedule can place a tensor in a scratchpad, not in a bank, and a
  virtual thread has a copy of every tensor that depends on it.
- channels.py, moves of channels: each block of the output has terms of its own, and a matrix for each.
- gate.py, products with a value per channel: all operands of an element-wise schedule have one shape.
- mean.py, means over rows and columns: sums of inputs without a second operand are no products for a schedule, so the
  ALU would add them, whose loads wait for it.
- transposed_conv.py: the phases of the output accumulate into one tensor, a stride apart, each with taps of its own.
  One reduction for all phases needs a kernel padded to whole strides: 36 products instead of 25 for 5x5, stride 2.
"""
