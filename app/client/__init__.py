"""The HTTP client of agents and of the command line.

What belongs here: requests (over `http_connection`), lists that go on as watches, WebSockets, TLS with a pinned authority,
connection errors in words; and the protocol between agents and the API (`protocol`), declared once for both ends.

May import: `app.kinds`, `app.machinery`. Imported by: `app.agent`, `app.main`; `app.api`, `app.registry` (protocol, framing).
Start reading: `api`, `watch`, `protocol`.
"""
