"""Commands for people without kubectl: `jobplane run`, `list`, `logs` and their kin. They call the public API only.

What belongs here: `jobs/` (start, repeat and end Jobs), `view/` (what there is, and what has been), `logs/`, and what commands
share: `access/` (the cluster that they call, kubeconfigs, sign-in), `terminal/` (tables, progress, completion).

May import: `app.client`, `app.kinds`, `app.machinery`, `app.main.cli_*`, and pure functions of `app.plans`.
Imported by: `app.main.cli`, which adds the commands.
Start reading: `access.cluster_access`, `jobs.run`, `view.job_words` (the words for the state of a Job, which is pure).
"""
