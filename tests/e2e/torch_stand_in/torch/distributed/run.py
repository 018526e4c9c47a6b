"""As much of torchrun as `examples/torchrun.yaml` calls: one process a node, with the environment that the real one gives it."""

import os
import runpy
import sys

*options, script = sys.argv[1:]
given = dict(each.removeprefix("--").split("=") for each in options)
assert given["nproc_per_node"] == "1"
os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = given["master_addr"], given["master_port"]
os.environ["RANK"], os.environ["WORLD_SIZE"] = given["node_rank"], given["nnodes"]
runpy.run_path(script, run_name="__main__")
