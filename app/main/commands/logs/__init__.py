"""`jobplane logs`: logs of pods and Jobs, as they come, and also once they are gone.

What belongs here: `logs` (the command), `log_choice` (which of the kept logs; pure), `log_streams` (followed while a pod runs,
read from kept logs once it is gone).

May import: `app.main.commands`, `app.client`, `app.kinds`, `app.machinery`.
Imported by: `app.main.cli`; `jobs.waiting`, for the logs of a Job that `jobplane run` waits for.
Start reading: `logs`, `log_streams`.
"""
