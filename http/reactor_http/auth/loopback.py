"""Recognizes loopback addresses and host names."""

import ipaddress


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def without_port(host: str) -> str:
    """The name or address in a Host header, without the brackets of an IPv6 address; empty if malformed."""
    if host.startswith("["):
        inside, closed, rest = host[1:].partition("]")
        return inside if closed and (not rest or _is_port(rest)) else ""
    name, colon, port = host.partition(":")
    return name if not colon or _is_port(colon + port) else ""


def _is_port(text: str) -> bool:
    return text.startswith(":") and text[1:].isascii() and text[1:].isdigit()
