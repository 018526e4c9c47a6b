"""Figures of a whole Jobplane, measured from outside as a client sees it: `python -m benchmarks`, `make bench`."""
