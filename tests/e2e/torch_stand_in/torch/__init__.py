"""Tensors of one dimension, as lists of numbers. Called by the script of `examples/torchrun.yaml`."""


class tensor(list[float]):  # noqa: N801, the name is PyTorch's
    def item(self) -> float:
        (only,) = self
        return only
