"""HTTP below the resources: connections, bodies, content types, errors.

What belongs here: uvicorn's protocol with our limits and upgrades, listening sockets, media types and decoding of bodies,
query options, compression, streamed answers, WebSockets, the `Status` of a failure.

May import: `app.kinds`, `app.machinery`, `app.client` (framing). Imported by: the rest of `app.api`.
Start reading: `content` (bodies in and out), `query`, `errors`, `connection`.
"""
