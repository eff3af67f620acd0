"""Guards which addresses Holdbeat calls: it must not become a way into the network that it stands in (SEC-04).

The invariant: an address of the cloud's metadata service, a link-local or an unspecified one is never
permitted, however it is spelled, wrapped into IPv6, or allowed by a setting. Local addresses are permitted
only where the server itself can be reached from this machine alone, or where the operator named them.

The table is our own: the standard library's `is_private` and `is_global` know neither NAT64, 6to4 nor
multicast, and change between releases of Python.
"""

from __future__ import annotations

import contextlib
import re
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal
from urllib.parse import urlsplit

from holdbeat.domain.errors import Invalid, SettingsError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

Reach = Literal["never", "local", "special", "public"]
"""`never`: no setting opens it. `local`: open to a server on loopback. `special`: open only when allowed."""

MAX_URL_LENGTH = 8192

_TABLE: tuple[tuple[str, Reach, str], ...] = (
    ("0.0.0.0/0", "public", "public"),
    ("0.0.0.0/8", "never", "an unspecified address"),
    ("10.0.0.0/8", "local", "a private address"),
    ("100.64.0.0/10", "local", "a carrier-grade NAT address"),
    ("100.100.100.200/32", "never", "a cloud metadata address"),
    ("127.0.0.0/8", "local", "a loopback address"),
    ("168.63.129.16/32", "never", "a cloud metadata address"),
    ("169.254.0.0/16", "never", "a link-local address"),
    ("169.254.169.254/32", "never", "a cloud metadata address"),
    ("169.254.170.0/24", "never", "a cloud metadata address"),
    ("172.16.0.0/12", "local", "a private address"),
    ("192.0.0.0/24", "special", "a reserved address"),
    ("192.0.0.192/32", "never", "a cloud metadata address"),
    ("192.0.2.0/24", "special", "a documentation address"),
    ("192.88.99.0/24", "special", "a 6to4 relay address"),
    ("192.168.0.0/16", "local", "a private address"),
    ("198.18.0.0/15", "special", "a benchmarking address"),
    ("198.51.100.0/24", "special", "a documentation address"),
    ("203.0.113.0/24", "special", "a documentation address"),
    ("224.0.0.0/4", "special", "a multicast address"),
    ("240.0.0.0/4", "special", "a reserved address"),
    ("255.255.255.255/32", "never", "the broadcast address"),
    # IPv6: only 2000::/3 is handed out to the public; whatever is not named here is reserved.
    ("::/0", "special", "a reserved address"),
    ("::/128", "never", "an unspecified address"),
    ("::1/128", "local", "a loopback address"),
    ("64:ff9b::/96", "public", "public"),  # NAT64: as good as the IPv4 address inside
    ("64:ff9b:1::/48", "special", "a local NAT64 address"),
    ("2000::/3", "public", "public"),
    ("2001::/23", "special", "a reserved address"),
    ("2001::/32", "special", "a Teredo address"),
    ("2001:2::/48", "special", "a benchmarking address"),
    ("2001:db8::/32", "special", "a documentation address"),
    ("2002::/16", "special", "a 6to4 address"),
    ("3fff::/20", "special", "a documentation address"),
    ("fc00::/7", "local", "a private address"),
    ("fd00:42::42/128", "never", "a cloud metadata address"),
    ("fd00:c1::a9fe:a9fe/128", "never", "a cloud metadata address"),
    ("fd00:ec2::/32", "never", "a cloud metadata address"),
    ("fd20:ce::254/128", "never", "a cloud metadata address"),
    ("fe80::/10", "never", "a link-local address"),
    ("fec0::/10", "local", "a private address"),
    ("ff00::/8", "special", "a multicast address"),
)

# The longest prefix decides, so the table may be read in any order.
_NETWORKS: tuple[tuple[Network, Reach, str], ...] = tuple(
    sorted(
        ((ip_network(text), reach, name) for text, reach, name in _TABLE),
        key=lambda row: row[0].prefixlen,
        reverse=True,
    )
)

_LOOPBACK_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
_METADATA_NAMES = ("metadata.google.internal", "metadata.goog", "instance-data.ec2.internal")

# Dots that IDNA treats like a full stop.
_DOTS = str.maketrans({"\u3002": ".", "\uff0e": ".", "\uff61": "."})
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")


@dataclass(frozen=True, slots=True)
class _Permit:
    """One entry of `outbound_allow`: a host name or a network, for one port or all."""

    name: str | None
    network: Network | None
    port: int | None

    def covers(self, ip: Address, host: str | None, port: int | None) -> bool:
        if self.port is not None and self.port != port:
            return False
        if self.name is not None:
            return host is not None and _plain(host) == self.name
        return self.network is not None and ip.version == self.network.version and ip in self.network


@dataclass(frozen=True, slots=True)
class OutboundPolicy:
    """What may be called: `loopback_server` says that the server itself listens on loopback alone, `allow`
    holds host names, addresses or networks, each with an optional `:port` (`[fd00::/8]:8080` for IPv6)."""

    loopback_server: bool
    allow: tuple[str, ...] = ()
    _permits: tuple[_Permit, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "_permits", tuple(_read_permit(entry) for entry in self.allow))

    def permits(self, ip: Address, host: str | None, port: int | None) -> bool:
        """Whether the operator named this address, or the host name that led to it."""
        return any(permit.covers(ip, host, port) for permit in self._permits)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a URL leads, in its plain spelling."""

    scheme: str
    host: str
    port: int


def judge(ip: str | Address, *, allow: OutboundPolicy, host: str | None = None, port: int | None = None) -> str | None:
    """Why this address must not be called, or None. `host` is the name that resolved to it, if any."""
    address = _unmapped(ip_address(ip) if isinstance(ip, str) else ip)
    for candidate in (address, *_embedded(address)):
        reach, name = _lookup(candidate)
        if reach == "never":
            return f"{address} is {name}, which is never called"
    for candidate in (address, *_embedded(address)):
        reach, name = _lookup(candidate)
        if reach == "public" or (reach == "local" and allow.loopback_server):
            continue
        if not (allow.permits(candidate, host, port) or allow.permits(address, host, port)):
            return f"{address} is {name}; add it to outbound_allow if it may be called"
    return None


def check_form(url: str) -> Target:
    """Refuses a URL that nobody could ever call, whatever is allowed."""
    if len(url) > MAX_URL_LENGTH:
        raise _refusal(f"The URL is longer than {MAX_URL_LENGTH} characters; shorten it.")
    if not all(char.isprintable() and not char.isspace() for char in url):
        raise _refusal("The URL contains spaces or control characters; remove or encode them.")
    try:
        parts = urlsplit(url)
        port = parts.port
        raw_host = parts.hostname
    except ValueError:
        raise _refusal("The URL cannot be read; write it like https://example.com:8443/path.") from None
    scheme = parts.scheme.lower()
    if scheme not in ("http", "https"):
        raise _refusal("Only http and https URLs are called; write it like https://example.com/path.")
    if "@" in parts.netloc:
        raise _refusal("The URL carries credentials; send them in a header instead.")
    if not raw_host:
        raise _refusal("The URL names no host; write it like https://example.com/path.")
    if port == 0:
        raise _refusal("Port 0 cannot be called; name a port from 1 to 65535 or none.")
    port = port or (443 if scheme == "https" else 80)
    address = spelled_address(raw_host)
    if address is not None:
        return Target(scheme, str(address), port)
    host = _plain(raw_host)
    if len(host) > 253 or not all(re.fullmatch("[a-z0-9_-]{1,63}", label) for label in host.split(".")):
        raise _refusal("The host is not a name that can be looked up; write it plainly, without encoding.")
    return Target(scheme, host, port)


def check_url(url: str, policy: OutboundPolicy) -> Target:
    """Refuses a URL that could never be called under `policy`. A name is judged again when it is resolved."""
    target = check_form(url)
    address = spelled_address(target.host)
    if address is None:
        _check_name(target.host, policy, target.port)
    else:
        reason = judge(address, allow=policy, port=target.port)
        if reason is not None:
            raise _refusal(f"This URL may not be called: {reason}.")
    return target


def spelled_address(host: str) -> Address | None:
    """The address that `host` spells in any way that a resolver would take for one, or None for a name."""
    host = _plain(host)
    if ":" in host:
        try:
            if "%" in host:
                raise ValueError(host)
            return _unmapped(IPv6Address(host))
        except ValueError:
            raise _refusal("The host is not a valid IPv6 address; zone ids are not supported.") from None
    parts = host.split(".")
    if not _NUMBER.fullmatch(parts[-1]):
        return None
    numbers = [_number(part) for part in parts]
    if len(parts) <= 4 and all(number is not None for number in numbers):
        *leading, last = [number for number in numbers if number is not None]
        # As inet_aton: the last number fills all bytes that are left.
        if all(number <= 255 for number in leading) and last < 256 ** (4 - len(leading)):
            value = sum(number << (24 - 8 * place) for place, number in enumerate(leading))
            return IPv4Address(value + last)
    raise _refusal("The host ends in a number but is not an IPv4 address; write it with four numbers.")


def _number(text: str) -> int | None:
    if not _NUMBER.fullmatch(text) or len(text) > 32:
        return None
    if text.startswith("0x"):
        return int(text[2:] or "0", 16)
    if text.startswith("0") and len(text) > 1:
        return int(text, 8) if all(digit in "01234567" for digit in text) else None
    return int(text)


def _plain(host: str) -> str:
    """One spelling per host: ASCII, compatibility characters folded, lower case, no final dot."""
    host = unicodedata.normalize("NFKC", host.translate(_DOTS)).translate(_DOTS).lower()
    if not host.isascii() and len(host) <= 253:
        # What IDNA cannot write is refused later, as a name that cannot be looked up.
        with contextlib.suppress(UnicodeError):
            host = host.encode("idna").decode("ascii").lower()
    return host.removesuffix(".")


def _check_name(host: str, policy: OutboundPolicy, port: int) -> None:
    if host in _METADATA_NAMES:
        raise _refusal("This URL may not be called: its host is a cloud metadata service.")
    if host in _LOOPBACK_NAMES or host.rpartition(".")[2] == "localhost":
        reason = judge(IPv4Address("127.0.0.1"), allow=policy, host=host, port=port)
        if reason is not None:
            raise _refusal(f"This URL may not be called: {reason}.")


@lru_cache(maxsize=4096)
def _lookup(address: Address) -> tuple[Reach, str]:
    for network, reach, name in _NETWORKS:
        if network.version == address.version and address in network:
            return reach, name
    return "special", "a reserved address"


def _unmapped(address: Address) -> Address:
    # The kernel treats ::ffff:a.b.c.d as that IPv4 address, so it is one.
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _embedded(address: Address) -> tuple[IPv4Address, ...]:
    """Every IPv4 address that a gateway on the way might take out of this IPv6 one."""
    if not isinstance(address, IPv6Address):
        return ()
    value = int(address)
    last = IPv4Address(value & 0xFFFFFFFF)
    head = value >> 96
    addresses: list[IPv4Address] = []
    if value >> 32 == 0 and value > 1:
        addresses.append(last)  # IPv4-compatible ::a.b.c.d
    elif value >> 32 == 0xFFFF << 16:
        addresses.append(last)  # IPv4-translated ::ffff:0:a.b.c.d
    elif value >> 32 == 0x0064FF9B << 64:
        addresses.append(last)
    elif value >> 80 == 0x0064FF9B0001:
        # The address stands at the end or, under a /48 prefix, around the bits 64 to 71 (RFC 6052). Which of
        # the two is not known; the wrong one reads as zeros.
        split = IPv4Address((value >> 64 & 0xFFFF) << 16 | (value >> 40 & 0xFFFF))
        addresses.extend(inner for inner in (last, split) if int(inner) >> 24)
    elif head >> 16 == 0x2002:
        addresses.append(IPv4Address((value >> 80) & 0xFFFFFFFF))
    elif head == 0x20010000:
        addresses.append(IPv4Address((value >> 64) & 0xFFFFFFFF))  # the Teredo server
        addresses.append(IPv4Address(~value & 0xFFFFFFFF))  # the client, its bits inverted
    if (value >> 32) & 0xFDFFFFFF == 0x00005EFE:
        addresses.append(last)  # ISATAP, under any prefix
    return tuple(addresses)


def _read_permit(entry: str) -> _Permit:
    text, port = entry.strip(), None
    bracketed = re.fullmatch(r"\[([^\]]+)\](/[0-9]+)?(?::([0-9]+))?", text)
    if bracketed:
        text = bracketed[1] + (bracketed[2] or "")
        port = bracketed[3]
    elif text.count(":") == 1:
        text, port = text.split(":")
    number = None if port is None else int(port) if re.fullmatch("[0-9]{1,5}", port) else 0
    if not text or (number is not None and not 1 <= number <= 65535):
        raise _bad_permit(entry)
    try:
        return _Permit(None, ip_network(text), number)
    except ValueError:
        name = _plain(text)
        if "/" in text or ":" in text or re.fullmatch(r"[0-9.]+", name):
            raise _bad_permit(entry) from None
        return _Permit(name, None, number)


def _bad_permit(entry: str) -> SettingsError:
    return SettingsError(
        f"outbound_allow: {entry!r} is not a host name, an address or a network (like 10.0.0.0/8),"
        " with an optional :port."
    )


def _refusal(detail: str) -> Invalid:
    return Invalid(detail, code="forbidden_target", field="url")
