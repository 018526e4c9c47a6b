"""OTLP over HTTP: spans as OpenTelemetry's protobuf, and the client that sends them to a collector.

`trace_export` uses it, and only if an endpoint is configured: the library is the extra `otel`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from urllib.parse import unquote, urlsplit

import httpx

from app.plans.jobs.traces import Span

PATH = "/v1/traces"
SECONDS = 10.0
_SCOPE = "jobplane"
_RETRYABLE = frozenset({429, 502, 503, 504})  # as the specification of OTLP has it


class ExportError(OSError):
    """The collector did not take the spans. `is_final` if it never will."""

    def __init__(self, text: str, *, is_final: bool = False) -> None:
        super().__init__(text)
        self.is_final = is_final


def encode(spans: Sequence[Span]) -> bytes:
    """Return the body of a request. Needs the extra `otel`."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.trace.v1.trace_pb2 import Span as Message
    from opentelemetry.proto.trace.v1.trace_pb2 import Status

    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    service = resource.resource.attributes.add()
    service.key, service.value.string_value = "service.name", _SCOPE
    scope = resource.scope_spans.add()
    scope.scope.name = _SCOPE
    for each in spans:
        made = scope.spans.add()
        made.trace_id, made.span_id, made.parent_span_id = each.trace_id, each.span_id, each.parent_id
        made.name, made.kind = each.name, Message.SPAN_KIND_INTERNAL
        made.start_time_unix_nano, made.end_time_unix_nano = _nanoseconds(each.start), _nanoseconds(each.end)
        made.status.code = Status.STATUS_CODE_ERROR if each.error else Status.STATUS_CODE_OK
        made.status.message = each.error
        for key, value in each.attributes.items():
            attribute = made.attributes.add()
            attribute.key = key
            if isinstance(value, int):
                attribute.value.int_value = value
            else:
                attribute.value.string_value = value
    encoded: bytes = request.SerializeToString()
    return encoded


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1_000


def traces_url(endpoint: str) -> str:
    """Return where traces are sent: the endpoint itself if it names the path, else the path below it."""
    return endpoint if urlsplit(endpoint).path.endswith(PATH) else f"{endpoint.rstrip('/')}{PATH}"


def parse_headers(text: str) -> dict[str, str]:
    """Parse name=value pairs by commas, percent-encoded, as OTEL_EXPORTER_OTLP_HEADERS has them. ValueError if it is not such."""
    found: dict[str, str] = {}
    for pair in filter(None, map(str.strip, text.split(","))):
        name, equals, value = pair.partition("=")
        if not name.strip() or not equals:
            raise ValueError("not name=value pairs, separated by commas")
        found[name.strip()] = unquote(value.strip())
    return found


class OtlpClient:
    """Sends spans to one collector."""

    def __init__(self, endpoint: str, headers: Mapping[str, str]) -> None:
        self._url = traces_url(endpoint)
        self._headers = {"Content-Type": "application/x-protobuf", **headers}
        self._http: httpx.AsyncClient | None = None

    async def send(self, body: bytes) -> None:
        """Raises ExportError unless the collector has taken it. Nothing of the URL or the headers is in its text."""
        if self._http is None:
            self._http = httpx.AsyncClient(timeout=SECONDS)
        try:
            answer = await self._http.post(self._url, content=body, headers=self._headers)
        except httpx.HTTPError as error:
            raise ExportError(f"the collector of traces does not answer: {type(error).__name__}") from error
        if not answer.is_success:
            is_final = answer.status_code not in _RETRYABLE
            raise ExportError(f"the collector of traces answered {answer.status_code}", is_final=is_final)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None
