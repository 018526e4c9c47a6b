"""Errors on the wire: every failure leaves as one `Status`, whatever raised it.

The edge of the API turns every exception into `response`; routes just raise. Nothing unexpected shows its text to a
client: it is logged under a number that the client is given.
"""

from traceback import walk_tb
from zlib import crc32

import msgspec
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from app.machinery.errors import ApiError, bad_request
from app.registry import OutcomeUnknown, Unavailable
from app.structured_logging import Logger

logger = Logger(__name__)

_OTHER = {
    400: ("BadRequest", "the server rejected our request"),
    404: ("NotFound", "the server could not find the requested resource"),
    405: ("MethodNotAllowed", "the server does not allow this method on the requested resource"),
    413: ("RequestEntityTooLarge", "the request is too large"),
    429: ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
}


# Made anew each time: an exception that is raised again and again keeps every traceback, and so every request.
def no_such_path() -> ApiError:
    return ApiError(404, *_OTHER[404])


def no_such_method() -> ApiError:
    return ApiError(405, *_OTHER[405])


def unavailable(why: str = "the database is not reachable, try again", seconds: int = 1) -> ApiError:
    """503: nothing was done, come again."""
    return ApiError(503, "ServiceUnavailable", why, retryAfterSeconds=seconds)


def outcome_unknown() -> ApiError:
    """504: the write may or may not have happened. Names no time to retry at, for a blind retry might do it twice."""
    return ApiError(504, "Timeout", "the database went away during the write: look before you try again")


def cut_short(method: str) -> ApiError:
    """Return what a request by this method comes to that a server which stops could not wait for."""
    if method in {"GET", "HEAD"}:
        return unavailable("the server is stopping, try again")
    return ApiError(504, "Timeout", "the server stopped during the request: look before you try again")


def too_new(asked: int, current: int) -> ApiError:
    """504: the revision asked for has not been given out, as after a database was put back or made anew."""
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return ApiError(504, "Timeout", message, causes=causes, retryAfterSeconds=1)


def response(error: Exception) -> Response:
    """The answer to a request that raised `error`."""
    refusal = as_api_error(error)
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    seconds = refusal.details.get("retryAfterSeconds")
    if seconds is not None:
        headers["Retry-After"] = str(seconds)
    if refusal.code == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(body(refusal), refusal.code, headers, "application/json")


def body(error: ApiError) -> bytes:
    """The `Status` as JSON, for answers and for ERROR events of a watch."""
    return msgspec.json.encode(error.status())


def as_api_error(error: Exception) -> ApiError:
    """Return what a client may know about `error`."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, OutcomeUnknown):
        return outcome_unknown()
    if isinstance(error, Unavailable | ConnectionError):
        logger.warning("database is unavailable; answering 503", error=error)
        return unavailable()
    if isinstance(error, ClientDisconnect):
        return ApiError(
            400, "BadRequest", "the client went away before it had sent everything"
        )  # is not sent to anyone
    if isinstance(error, RequestValidationError):
        return bad_request("; ".join(f"{each['loc'][-1]}: {each['msg']}" for each in error.errors()))
    if isinstance(error, HTTPException):
        reason, message = _OTHER.get(error.status_code, ("", error.detail))
        return ApiError(error.status_code, reason, message)
    return _unexpected_error(error)


def _unexpected_error(error: Exception) -> ApiError:
    error_id = f"{_fingerprint(error):08x}"
    logger.error("unexpected error; answering 500", error_id=error_id, traceback_of=error)
    return ApiError(500, "InternalError", f"Internal error occurred: see {error_id} in the server's log")


def _fingerprint(error: Exception) -> int:
    """The same for errors of one type from one place, so that the one line a minute that is logged stands for all of them."""
    places = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    return crc32(repr((type(error).__name__, places)).encode())
