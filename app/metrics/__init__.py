"""Numbers of one process in Prometheus' text format: what each program counts, and how it is written down for a scrape.

What belongs here: `instruments` (counters, gauges, histograms), `registry` (all of a process, and what is computed at a scrape),
`exposition` (the text format), `process` (memory, CPU time and open files of this process), `health_checks`, and `listener`, by
which programs that are no API serve all of this. What a number means belongs to
the module that counts it. Agents import this, so it stays small: prometheus_client would cost each of them a megabyte, and its
collectors cannot await a database.

May import: the standard library, `app.structured_logging`. Imported by: `app.store` and all above.
Start reading: `instruments`, then `registry`.
"""
