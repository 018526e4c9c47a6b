"""Kubernetes' paths: verbs on resources, discovery, reviews.

What belongs here: the ASGI application that dispatches every Kubernetes path, one module for single objects, one for
collections, lists with pages, apply, tables, protobuf bodies, discovery, eviction, metrics.k8s.io.

May import: `app.api.http`, `app.api.auth`, `app.registry`. Imported by: `app.api.app`, `app.api.documents`.
Start reading: `kubernetes` (dispatch), `single_object`, `collection`, `lists`.
"""
