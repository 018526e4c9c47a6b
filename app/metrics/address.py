"""Address of a listener, host:port, as settings have it: parsed without loading what listens."""


def parse_address(text: str) -> tuple[str, int]:
    """Split host:port; an IPv6 address stands in brackets. ValueError if it is not such."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text} is not an address such as 127.0.0.1:9464")
    return host.removeprefix("[").removesuffix("]"), int(port)
