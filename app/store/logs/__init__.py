"""Container logs, stored apart from pods and nodes, so that they outlive both.

What belongs here: `logs` (append, read, follow), `kept_logs` (which logs there are, and what becomes of a log whose container has
ended). How long they stay is `app.controllers.retention.log_retention`; agents ship them by `app.agent.logs`.

May import: `app.store.errors`. Imported by: `app.store`, `app.registry`, `app.controllers`.
Start reading: `logs`.
"""
