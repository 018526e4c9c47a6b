"""Answers that stay open: watch, logs, exec, attach, port-forward.

What belongs here: watches over HTTP and WebSocket, logs of pods, and the channels by which exec, attach and port-forward
reach the agent of a pod's node, which dials back.

May import: `app.api.http`, `app.api.auth`, `app.registry`, `app.client`. Imported by: `app.api.resources`, `app.api.routers`,
`app.api.app`.
Start reading: `watch`, `logs`, `pod_streams` (from request to agent), `exec_attach`, `port_forward`.
"""
