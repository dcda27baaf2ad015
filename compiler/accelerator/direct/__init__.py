"""The second way to a program: kernels that are recorded instruction by instruction, without a schedule.

A kernel belongs here where a schedule would take more cycles or many more instructions. It is a function `lower(rec,
op, ...)` that appends to `rec.program`. Its scratchpad entries come from on_chip.py, its estimates from
compiler/cost.py; dependence tokens, checks and devices are those of every program (docs/schedules.md, "Two ways").
"""
