"""The way of accumulators to DRAM: read, requantised by the post-processing unit, packed, written in bursts."""
