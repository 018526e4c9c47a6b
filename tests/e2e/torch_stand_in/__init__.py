"""Runs `examples/torchrun.yaml` without PyTorch: a folder for PYTHONPATH, whose `torch` is as much of it as the example calls."""
