"""Random lives of Jobs: the Job plan against a fake cluster with a fake clock, and a model that knows what is right.

`shapes` draws a Job, `world` is the store, `controller` plans and commits as well or as badly as a real one may, `moves`
is all that can happen, `sight` and `oracle` say what Kubernetes would do, `ledger` keeps the model's own account,
`audit` compares, `run` puts them together. The model shares no code with the plans that it judges.

One life again, told step by step: `python -m tests.plans.simulation <shape> <seed>`.
"""
