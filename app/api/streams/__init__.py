"""Answers that stay open: watch, logs, exec, attach, port-forward, the proxy.

What belongs here: watches over HTTP and WebSocket, logs of pods, the channels by which exec, attach and port-forward reach the
agent of a pod's node, which dials back, and HTTP to a pod's port by the same way.

May import: `app.api.http`, `app.api.auth`, `app.registry`, `app.client`. Imported by: `app.api.resources`, `app.api.routers`,
`app.api.app`.
Start reading: `watch`, `logs`, `pod_streams` (from request to agent), `exec_attach`, `port_forward`,
`proxy`.
"""
