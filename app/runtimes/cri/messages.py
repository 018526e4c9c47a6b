"""Protobuf messages of CRI, as `pb`. Imported by all modules of the cri runtime.

Their package brings a gRPC client, too, and with it a library that would be a quarter of an agent's memory. It is left out.
"""

import sys
from types import ModuleType

_CLIENT = "cri_api.v1.api_pb2_grpc"

_is_alone = _CLIENT not in sys.modules
sys.modules.setdefault(_CLIENT, ModuleType(_CLIENT))
try:
    from cri_api.v1 import api_pb2 as pb
finally:
    if _is_alone:
        del sys.modules[_CLIENT]

__all__ = ["pb"]
