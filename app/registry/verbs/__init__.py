"""The verbs, once for all kinds: create, get, list, watch, update, patch, delete, bind, evict.

What belongs here: `objects` (the verbs), `versions` (what an object becomes), `deletion`, `lists`, `watch`, `apply_or_create`;
`other_versions` (of kinds that webhooks convert); `strategies` (what differs by kind, where its `Kind` record cannot say it);
`binding` and `eviction` (subresources of pods).
Nothing here but strategies, binding and eviction names a kind; an import contract keeps it so.

May import: `app.registry`, `app.store`, `app.plans`, `app.kinds`, `app.machinery`.
Imported by: the other packages of the registry, `app.api`, `app.controllers`, `app.main`.
Start reading: `objects`, `versions`, `strategies`.
"""
