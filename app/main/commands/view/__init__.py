"""Commands that show what there is: `jobplane list`, `get`, `history`, `watch`, `nodes`, `top`.

What belongs here: a module for each (`listing`, `get`, `history`, `watch`; `machines` has the last two), and what they show:
the state of a Job in words (`job_words`), its `attempts`, the record of a Job that is gone (`records`), a Job that is kept up
to date (`job_view`), lines about one Job (`sheets`), sums (`usage`).

May import: `app.main.commands` (`access`, `terminal`, `jobs.waiting`), `app.client`, `app.kinds`, `app.machinery`, pure
functions of `app.plans`. Imported by: `app.main.cli`, the commands of `jobs` and `logs`.
Start reading: `job_words`, `listing`.
"""
