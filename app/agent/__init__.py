"""The node agent: runs the pods that are bound to its nodes. An ordinary client of the API that dials out."""
