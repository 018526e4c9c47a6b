"""Audit: who did what to which object, from where, with what answer and why: events as Kubernetes' audit.k8s.io/v1 has them.

`auditor` follows each request and, once it is answered, asks `policy` whether it is an event, and of which level. The event
goes into `event_buffer`, whose thread writes lines (`event`) to `log_file`, off the request's path. `app.main` opens the log by
`audit_log`, before anything is served. To add an annotation to the event of a request, call `annotations.annotate`.

May import: `app.registry` and below, `app.api.auth.authenticator`, `app.api.http.errors`. Imported by: the rest of `app.api`.
Start reading: `auditor`, `policy`.
"""
