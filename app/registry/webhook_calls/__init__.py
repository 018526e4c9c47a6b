"""Calls of webhooks that the server waits for: HTTPS with the certificates that a configuration names, on kept-alive connections.

What belongs here: `webhook_client` (one call, by URL or by Service), `https_connection` (HTTP/1.1 on one connection),
`service_resolver` (addresses behind a Service). What is sent, and what an answer means, is for `app.plans.admission.webhooks` and
`app.plans.conversion_review`.
Messages that nobody waits for are sent by `app.controllers.webhooks`.

May import: `app.store`, `app.plans`, `app.kinds`, `app.machinery`. Imported by: `app.registry`.
Start reading: `webhook_client`.
"""
