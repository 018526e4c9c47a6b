"""The network that pods get addresses of (`--pod-cidr`), and the size of each node's part of it."""

from ipaddress import IPv4Network

MASK = 24


def parse_cidr(text: str) -> IPv4Network:
    """Raises ValueError, whose text says what to pass."""
    try:
        found = IPv4Network(text)
    except ValueError:
        raise ValueError(f"{text} is not an IPv4 network such as 10.244.0.0/16") from None
    if not 8 <= found.prefixlen <= MASK:
        raise ValueError(f"{text} must be of /8 to /{MASK}: each node gets a /{MASK} of it")
    return found
