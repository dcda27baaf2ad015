"""The way of data into the scratchpads: rows of DRAM become requests, their beats become entries."""
