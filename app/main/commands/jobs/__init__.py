"""Commands that start, repeat and end Jobs: `jobplane run`, `submit`, `rerun`, `cancel`.

What belongs here: a module for each of these commands; the Jobs that they make (`job_template`, `job_patch`, `manifests`,
`sbatch`; all pure); `waiting`, which follows a Job until it ends.

May import: `app.main.commands` (`access`, `view`, `logs`, `terminal`), `app.client`, `app.kinds`, `app.machinery`.
Imported by: `app.main.cli`; `waiting` also by the commands `watch` and `logs`.
Start reading: `run`, `waiting`.
"""
