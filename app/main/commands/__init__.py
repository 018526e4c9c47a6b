"""Commands for people without kubectl: `jobplane run`, `list`, `logs` and their kin. They call the public API only.

What belongs here: one module for each subject of a command (`run`, `listing`, `logs`), and what commands share: the cluster
that they call (`cluster_access`, `kubeconfig`), tables that fit the terminal (`tables`), and the words for the state of a Job
(`job_words`, which is pure).

May import: `app.client`, `app.kinds`, `app.machinery`, `app.main.cli_*`, and pure functions of `app.plans`.
Imported by: `app.main.cli`, which adds the commands.
Start reading: `cluster_access`, `run`, `job_words`.
"""
