"""Controllers of a namespace: what each namespace has, what limits it, and how it is emptied.

What belongs here: `namespaces` (deletion), `serviceaccounts` (the account named default), `root_ca_publisher` (the ConfigMap
kube-root-ca.crt), `resource_quotas` (usage of ResourceQuotas).

May import: `app.controllers` (`planned_write`), `app.registry`, `app.store`, and all below.
Imported by: `app.controllers.manager`.
Start reading: `root_ca_publisher` (the smallest controller), `namespaces`, then `app.plans.namespace_deletion`.
"""
