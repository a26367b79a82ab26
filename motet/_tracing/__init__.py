"""Steps recorded once, simplified and replayed: an accelerator that steps aside.

In the order of use: `support` tells whether this torch can be traced at all; `programs` keeps one
program per step and shape; `recording` writes a step down as a graph; `graphs` runs the passes,
which are in `pooling`, `updates` (reads updates), `additions` (writes them) and `deferring`.
"""
