"""Logs of containers as files: their format, reading, following, and giving disk space back.

What belongs here: the record format of CRI (`log_format`), readers of files that an engine writes, inotify, and the release of
what a reader has done with (`punch_hole`).

May import: `app.runtimes.base`. Imported by: the runtimes.
Start reading: `log_format`, `log_files`.
"""
