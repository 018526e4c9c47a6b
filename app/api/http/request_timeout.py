"""The query parameter `timeout` that clients give any request, such as kubectl's `--request-timeout`: 400 if it is no duration.

The routes of Kubernetes' paths call `check_timeout`. Watches and streams are left alone, as in Kubernetes: the query of a proxied
request is not for us. The value is not acted on: a client that waits no longer closes its connection.
"""

import re

from starlette.requests import Request

from app.api.request_metrics import is_long_running
from app.machinery.errors import bad_request

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_AMOUNT = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
_UNIT = re.compile(r"[^.0-9]*")
_LONGEST = 2**63 - 1  # nanoseconds


def check_timeout(request: Request) -> None:
    """Raise the 400 for a `timeout` that Go's time.ParseDuration refuses."""
    if b"timeout=" not in request.scope["query_string"] or is_long_running(request.scope):
        return
    text = next((value for name, value in request.query_params.multi_items() if name == "timeout"), "")
    fault = _find_fault(text)
    if text and fault:
        raise bad_request(f"invalid timeout specified in the request URL - time: {fault}")


def _find_fault(text: str) -> str:
    """Return what Go says of a duration; empty if it is one."""
    quoted = f'"{text}"'
    rest = text[1:] if text[:1] in {"-", "+"} else text
    if rest == "0":
        return ""
    total = 0.0
    at = 0
    while at < len(rest) or not rest:
        amount = _AMOUNT.match(rest, at)
        if amount is None:
            return f"invalid duration {quoted}"
        unit = _UNIT.match(rest, amount.end())
        name = unit[0] if unit else ""
        if not name:
            return f"missing unit in duration {quoted}"
        if name not in _UNITS:
            return f'unknown unit "{name}" in duration {quoted}'
        total += float(amount[0]) * _UNITS[name]
        at = amount.end() + len(name)
    return f"invalid duration {quoted}" if total > _LONGEST else ""
