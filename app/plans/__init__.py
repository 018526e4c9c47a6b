"""Decisions: pure functions from a situation and the time to a plan. See README.md for the vocabulary."""
