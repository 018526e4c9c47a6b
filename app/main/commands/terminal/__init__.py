"""The terminal of a command: what it prints, and what shells complete.

What belongs here: `tables` (columns that fit the terminal; JSON and YAML), `screen` (log lines, and below them one line of
progress), `completion` (names of Jobs and namespaces, while a command line is typed).

May import: `app.main.commands.access`. Imported by: all commands.
Start reading: `tables`, `screen`.
"""
