"""Pretends to run containers, for tests, benchmarks and large fleets on one machine.

What belongs here: the runtime, and the meaning of the annotation `jobplane.dev/simulate`. No processes, all in memory,
thousands of starts a second.

May import: `app.runtimes.base`. Imported by: `app.runtimes` (`make_runtime`), and by the agent for the clock of tests.
Start reading: `runtime`, `simulation`.
"""
