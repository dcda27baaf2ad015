"""From scheduled TIR to recorded instructions: passes, affine matching, scratchpads, micro-ops."""
