"""The HTTP client of agents and of the command line.

What belongs here: requests, lists that go on as watches, WebSockets, TLS with a pinned authority, connection errors in words;
and what an API process and an agent say to each other in a stream (`agent_call`).

May import: `app.kinds`, `app.machinery`. Imported by: `app.agent`, `app.main`, `app.api` (framing).
Start reading: `api`, `watch`.
"""
