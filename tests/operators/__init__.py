"""Operators of the batch world, built from their public source and run against a whole Jobplane, as processes of this machine.

What belongs here: one file for each operator, with what a user of it does. Nothing of their code or manifests is kept: both
come from the Go module proxy (`go_modules`) or PyPI, pinned, and are cached. Only with JOBPLANE_OPERATORS=1, as `make
test-long` sets it; a pytest run without it skips everything here. docs/operators.md says what was found.
"""
