"""Entry points: the command line and the processes that it starts.

What belongs here: `jobplane` and its commands (`cli`, `cli_*`; `commands/` for people), the supervisor behind `jobplane up`, the
agent's process, the output of logs, and the demo. Only this package reads settings and opens the store; everything below gets
values.

May import: everything. Imported by: nothing.
Start reading: `cli` (all commands), `supervisor` (`jobplane up`), `cli_process` (signals), `agent_process`,
`log_output`.
"""
