"""Kinds of storage: PersistentVolume, PersistentVolumeClaim and StorageClass.

What belongs here: validation, columns, `KIND` of each, and the provisioners' names. What is bound to what is decided in
`app.plans.volumes`; nodes mount it in `app.agent.volumes`.

May import: `app.machinery` and other kinds. Imported by: everything above kinds, and the structs of pods.
Start reading: `storageclass`, `persistentvolumeclaim`.
"""
