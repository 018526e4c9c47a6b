"""gRPC health check (grpc.health.v1). Imported only where a probe needs it.

Request and answer have one field each, so no generated code is needed.
"""

import grpc.aio

SERVING = 1
_WORDS = {0: "UNKNOWN", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


async def ask(address: str, service: str, timeout: float) -> tuple[bool, str]:  # noqa: ASYNC109 - gRPC has its own
    """Return whether it serves, and its message if not."""
    name = service.encode()
    async with grpc.aio.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            answer = await check(b"\x0a" + _varint(len(name)) + name if name else b"", timeout=timeout)
        except grpc.aio.AioRpcError as error:
            return False, _refusal(error, address, timeout)
    status = answer[1] if len(answer) >= 2 and answer[0] == 0x08 else 0
    return (
        status == SERVING,
        "" if status == SERVING else f'service unhealthy (responded with "{_WORDS.get(status, status)}")',
    )


def _refusal(error: grpc.aio.AioRpcError, address: str, seconds: float) -> str:
    code = error.code()
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return "error: this server does not implement the grpc health protocol (grpc.health.v1.Health)"
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"timeout: health rpc did not complete within {seconds:g}s"
    if code == grpc.StatusCode.UNAVAILABLE:
        return f'timeout: failed to connect service "{address}" within {seconds:g}s: {error.details()}'
    return f"error: health rpc probe failed: {error.details()}"


def _varint(number: int) -> bytes:
    encoded = b""
    while number > 127:
        encoded += bytes([number & 127 | 128])
        number >>= 7
    return encoded + bytes([number])
