"""Speaks HTTP: Kubernetes' paths, parameters and media types on the one side, `app.registry` on the other."""
