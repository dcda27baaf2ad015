"""Sequences whose heads are the lanes of an entry: element-wise products, softmax and norms of Deeploy's integers.

With one matrix per lane a product of matrices is one of entries, and what is summed or compared along rows and columns
lies in different entries: no lane needs another one's value. That suits heads that are narrower than an entry.
"""
