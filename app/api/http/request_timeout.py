"""The query parameter `timeout` that clients give any request, such as kubectl's `--request-timeout`: 400 if it is no duration.

The routes of Kubernetes' paths call `check_timeout`. Watches and streams are left alone, as in Kubernetes: the query of a proxied
request is not for us. The value is not acted on: a client that waits no longer closes its connection.
"""

from starlette.requests import Request

from app.api.http.query import first_value, query_of
from app.api.request_metrics import is_long_running
from app.machinery.durations import parse_nanoseconds
from app.machinery.errors import bad_request


def check_timeout(request: Request) -> None:
    """Raise the 400 for a `timeout` that Go's time.ParseDuration refuses."""
    if b"timeout=" not in request.scope["query_string"] or is_long_running(request.scope):
        return
    try:
        parse_nanoseconds(first_value(query_of(request), "timeout") or "0")
    except ValueError as error:
        raise bad_request(f"invalid timeout specified in the request URL - {error}") from error
