"""GET /openapi/v2: an empty document in protobuf.

kubectl 1.27 and 1.28 ask for it before they read version 3, and fail on a 404 or on JSON; nothing reads what is in it.
"""

from app.api.accept import OPENAPI_V2

CONTENT_TYPE = OPENAPI_V2
BODY = b""
