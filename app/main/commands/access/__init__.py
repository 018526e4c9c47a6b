"""The cluster that a command calls: how it is found, and how the user is known there.

What belongs here: `cluster_access` (options, client, errors in one line), `kubeconfig` and `exec_credential` (as kubectl reads
and runs them), `login` with `oidc_signin` (sign-in at an identity provider), `resources` (kinds by the names that people type).

May import: `app.client`, `app.kinds`, `app.machinery`, `app.main.cli_*`, `terminal.completion`.
Imported by: all commands, `app.main.cli`.
Start reading: `cluster_access`.
"""
