"""Decisions: pure functions from what is stored and the time to a plan. README.md has the vocabulary.

What belongs here: what the controllers, the registry and the agents decide. `jobs/` (Job and CronJob controllers),
`deployments/` (Deployment and ReplicaSet controllers), `kubelet/` (the agent), `nodes/` (node lifecycle), `admission/` (rules
for new objects), `volumes/` (storage); here: the plan itself, garbage collection, disruption budgets, deletion of namespaces,
ConversionReviews. No plan reads a clock, waits, logs or draws random numbers.

May import: `app.kinds`, `app.machinery`. Imported by: the scheduler, the registry, controllers, agents.
Start reading: `plan` (what a decision is made of), `jobs.job`.
"""
