"""What the API means, for any kind: create, get, list, watch, update, patch, delete, bind. Above the store, below HTTP.

What belongs here: the verbs, once for all kinds (`objects`); admission; leader election; batches that agents report; the
writing of plans. Nothing here knows HTTP.

May import: `app.store`, `app.plans`, `app.kinds`, `app.machinery`. Imported by: `app.api`, `app.controllers`.
Start reading: `objects` (verbs), `versions` (what an object becomes), `plan_writer`, `leader_election`.
"""
