"""Traces of Jobs for OpenTelemetry: what a Job's trace is made of is decided in `app.plans.jobs.traces`; here it is sent.

What belongs here: `trace_export` (which Jobs wait, and when a trace is given up) and `otlp` (the encoding, and the HTTP client).

May import: `app.plans.jobs`, `app.store`, `app.metrics`. Imported by: `app.controllers.manager`, `app.main`. Start reading:
`trace_export`.
"""
