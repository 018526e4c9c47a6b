"""Webhooks: a message for each Job that ends, delivered at least once.

What belongs here: `webhook_messages` (from history to the outbox), `webhook_delivery` (from the outbox to receivers, with
retries), `webhook_client` (HTTP to addresses that were checked). Bodies, signatures and retries are decided by
`app.plans.webhooks`; the outbox is `app.store.webhook_outbox`.

May import: `app.registry`, `app.store`, and all below. Imported by: `app.controllers.manager`, `app.main`.
Start reading: `webhook_messages`, `webhook_delivery`.
"""
