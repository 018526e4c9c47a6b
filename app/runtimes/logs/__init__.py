"""Logs of containers as files: their format, reading, following, and giving disk space back.

What belongs here: the record format of CRI (`log_format`), readers of files that an engine writes, inotify, and the release of
disk space behind a reader.

May import: `app.runtimes.base`. Imported by: the runtimes.
Start reading: `log_format`, `log_files`.
"""
