"""SEC-04 as a table: which addresses may be called, under which policy, in which spelling."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdbeat.domain.address import OutboundPolicy, Target, check_url, judge, spelled_address
from holdbeat.domain.errors import Invalid, SettingsError

OPEN = OutboundPolicy(loopback_server=False)
LOCAL = OutboundPolicy(loopback_server=True)
NAT64 = IPv6Network("64:ff9b::/96")
EVERYTHING = OutboundPolicy(loopback_server=True, allow=("0.0.0.0/0", "::/0"))

NEVER = [
    "0.0.0.0",
    "0.1.2.3",
    "169.254.169.254",
    "169.254.170.2",
    "169.254.1.1",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "255.255.255.255",
    "::",
    "fe80::1",
    "febf::1",
    "fd00:ec2::254",
    "fd00:ec2::23",
    "fd20:ce::254",
    "::ffff:169.254.169.254",
    "::ffff:0.0.0.0",
    "::169.254.169.254",
    "::ffff:0:169.254.169.254",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::169.254.169.254",
    "64:ff9b:1:a9fe:a9:fe00::",
    "2002:a9fe:a9fe::1",
    "2001:0:a9fe:a9fe::1",
    "2001:0:808:808::5601:5601",
    "2606:4700::5efe:169.254.169.254",
]
LOCAL_ONLY = [
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "127.0.0.1",
    "127.255.255.254",
    "100.64.0.1",
    "100.127.255.255",
    "::1",
    "fc00::1",
    "fdff::1",
    "fec0::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::10.0.0.1",
    "2606:4700::5efe:10.0.0.1",
]
SPECIAL = [
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "198.18.0.1",
    "198.19.255.255",
    "192.0.2.1",
    "198.51.100.1",
    "203.0.113.1",
    "192.0.0.1",
    "192.88.99.1",
    "ff02::1",
    "2001:db8::1",
    "3fff::1",
    "2001:2::1",
    "2001:10::1",
    "2002:808:808::1",
    "2002:7f00:1::",
    "2001:0:808:808::f7f7:f7f7",
    "64:ff9b:1::8.8.8.8",
    "100::1",
    "4000::1",
    "5f00::1",
    "::127.0.0.1",
    "::8.8.8.8",
    "::ffff:0:7f00:1",
]
PUBLIC = [
    "8.8.8.8",
    "1.1.1.1",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.1",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2606:4700::1111",
    "2001:4860:4860::8888",
    "2a00::1",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
]


@pytest.mark.rule("SEC-04")
@pytest.mark.parametrize("ip", NEVER)
def test_no_setting_opens_metadata_link_local_or_unspecified_addresses(ip: str) -> None:
    named = OutboundPolicy(loopback_server=True, allow=("0.0.0.0/0", "::/0", "metadata.example"))
    for policy in (OPEN, LOCAL, EVERYTHING, named):
        assert judge(ip, allow=policy, host="metadata.example") is not None


@pytest.mark.rule("SEC-04")
@pytest.mark.parametrize("ip", LOCAL_ONLY)
def test_local_addresses_are_open_only_to_a_server_on_loopback(ip: str) -> None:
    assert judge(ip, allow=OPEN) is not None
    assert judge(ip, allow=LOCAL) is None
    assert judge(ip, allow=OutboundPolicy(False, ("0.0.0.0/0", "::/0"))) is None


@pytest.mark.rule("SEC-04")
@pytest.mark.parametrize("ip", SPECIAL)
def test_special_addresses_are_closed_until_the_operator_names_them(ip: str) -> None:
    assert judge(ip, allow=OPEN) is not None
    assert judge(ip, allow=LOCAL) is not None
    assert judge(ip, allow=EVERYTHING) is None


@pytest.mark.rule("SEC-04")
@pytest.mark.parametrize("ip", PUBLIC)
def test_public_addresses_may_be_called(ip: str) -> None:
    assert judge(ip, allow=OPEN) is None
    assert judge(ip, allow=LOCAL) is None


@pytest.mark.rule("SEC-04")
@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_what_the_standard_library_calls_local_is_never_open(ip: IPv4Address | IPv6Address) -> None:
    plain = ip.ipv4_mapped if isinstance(ip, IPv6Address) and ip.ipv4_mapped else ip
    closed = plain.is_private or plain.is_loopback or plain.is_link_local or plain.is_multicast
    if closed or plain.is_reserved or plain.is_unspecified:
        assert ip in NAT64 or judge(ip, allow=OPEN) is not None


@pytest.mark.rule("SEC-04")
@given(st.ip_addresses(v=4))
def test_wrapping_an_address_into_ipv6_never_opens_it(ip: IPv4Address) -> None:
    if judge(ip, allow=OPEN) is None:
        return
    value = int(ip)
    wrapped = [
        IPv6Address(0xFFFF << 32 | value),
        IPv6Address(value),
        IPv6Address(0x64FF9B << 96 | value),
        IPv6Address(0x2002 << 112 | value << 80),
        IPv6Address(0x20010000 << 96 | value << 64),
        IPv6Address(0x20010000 << 96 | 0x08080808 << 64 | (value ^ 0xFFFFFFFF)),
    ]
    assert all(judge(address, allow=OPEN) is not None for address in wrapped)


SPELLINGS_OF_LOOPBACK = [
    "127.0.0.1",
    "127.0.0.1.",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0X7F000001",
    "0x7f.1",
    "0x7f.0x0.0x0.0x1",
    "0177.0.0.1",
    "017700000001",
    "0000000177.0.0.01",
    "１２７.０.０.１",
    "①②⑦.0.0.1",
    "127。0。0。1",
    "127．0．0．1",
    "127｡0｡0｡1",
    "127.0.0\u00ad.1",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0000:0000:0000:0000:0000:ffff:7f00:0001]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "ｌｏｃａｌｈｏｓｔ",
    "anything.localhost",
    "127%2e0%2e0%2e1",
    "%31%32%37.0.0.1",
    "127.0.0.1%00",
    "127.0.0.1%20",
    "[::1%25lo]",
    "[::1%lo]",
]


@pytest.mark.rule("SEC-04")
@pytest.mark.parametrize("host", SPELLINGS_OF_LOOPBACK)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_every_spelling_of_loopback_is_refused(scheme: str, host: str) -> None:
    with pytest.raises(Invalid) as refusal:
        check_url(f"{scheme}://{host}:8080/path", OPEN)
    assert (refusal.value.code, refusal.value.field) == ("forbidden_target", "url")


@pytest.mark.rule("SEC-04")
@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "0xa9fea9fe",
        "2852039166",
        "169.254.43518",
        "0251.0376.0251.0376",
        "[::ffff:a9fe:a9fe]",
        "[fd00:ec2::254]",
        "0",
        "0x0",
        "0x",
        "[::]",
        "metadata.google.internal",
        "METADATA.google.internal.",
    ],
)
def test_every_spelling_of_metadata_is_refused_even_on_loopback(host: str) -> None:
    for policy in (OPEN, LOCAL, EVERYTHING):
        with pytest.raises(Invalid):
            check_url(f"http://{host}/latest/meta-data", policy)


@pytest.mark.rule("SEC-04")
@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "/path",
        "//example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "http:///path",
        "http://:80/",
        "http://user@example.com/",
        "http://user:secret@example.com/",
        "http://example.com:0/",
        "http://example.com:65536/",
        "http://example.com:-1/",
        "http://example.com:+80/",
        "http://example.com:８０/",
        "http://example.com:80:80/",
        "http://exa mple.com/",
        "http://example.com/a b",
        "http://example.com/\r\nHost: other",
        "http://example.com/\x00",
        "http://example.com/\ud800",
        " http://example.com/",
        "http://example.com\\@127.0.0.1/",
        "http://127.0.0.1\\.example.com/",
        "http://[::1/",
        "http://[not-an-address]/",
        "http://1.2.3.4.5/",
        "http://256.1.1.1/",
        "http://1.2.3.08/",
        "http://4294967296/",
        "http://example..com/",
        "http://" + "a" * 64 + ".com/",
        "http://" + "a." * 127 + "com/",
        "http://example.com/" + "a" * 9000,
    ],
)
def test_a_url_that_cannot_be_understood_in_one_way_only_is_refused(url: str) -> None:
    with pytest.raises(Invalid) as refusal:
        check_url(url, LOCAL)
    assert (refusal.value.code, refusal.value.field) == ("forbidden_target", "url")


@pytest.mark.rule("SEC-04")
def test_a_url_is_reduced_to_one_spelling_of_its_target() -> None:
    assert check_url("http://Example.COM./x?y#z", OPEN) == Target("http", "example.com", 80)
    assert check_url("HTTPS://example.com:/", OPEN) == Target("https", "example.com", 443)
    assert check_url("https://bücher.example:8443/", OPEN) == Target("https", "xn--bcher-kva.example", 8443)
    assert check_url("http://0x8080808/", OPEN) == Target("http", "8.8.8.8", 80)
    assert check_url("http://[2606:4700:0::1111]/", OPEN) == Target("http", "2606:4700::1111", 80)
    assert check_url("http://127.1:99/", LOCAL) == Target("http", "127.0.0.1", 99)


@given(st.ip_addresses(v=4))
def test_all_numeric_spellings_name_the_same_address(ip: IPv4Address) -> None:
    a, b, c, d = ip.packed
    rest = c << 8 | d
    spellings = [
        str(ip),
        str(int(ip)),
        hex(int(ip)),
        f"0{int(ip):o}",
        f"{a}.{b}.{rest}",
        f"{a}.{b << 16 | rest}",
        f"{a:#x}.{b}.0{c:o}.{d}",
    ]
    assert {spelled_address(text) for text in spellings} == {ip}


@given(st.text(max_size=60))
def test_any_text_is_either_a_target_or_refused(text: str) -> None:
    for url in (text, f"http://{text}", f"http://{text}/"):
        try:
            target = check_url(url, OPEN)
        except Invalid as refusal:
            assert refusal.code == "forbidden_target"
        else:
            assert target.host and 0 < target.port < 65536


@pytest.mark.rule("SEC-04")
@pytest.mark.parametrize(
    ("entry", "ip", "host", "port", "is_permitted"),
    [
        ("10.1.2.3", "10.1.2.3", None, 80, True),
        ("10.1.2.3", "10.1.2.4", None, 80, False),
        ("10.1.2.3", "::ffff:10.1.2.3", None, 80, True),
        ("10.0.0.0/8", "10.9.9.9", None, 80, True),
        ("10.0.0.0/8", "192.168.0.1", None, 80, False),
        ("10.0.0.0/8:8080", "10.9.9.9", None, 8080, True),
        ("10.0.0.0/8:8080", "10.9.9.9", None, 80, False),
        ("127.0.0.1:9000", "127.0.0.1", None, 9000, True),
        ("127.0.0.1:9000", "127.0.0.1", None, 9001, False),
        ("fd00::/8", "fd12::1", None, 80, True),
        ("[fd00::1]:8080", "fd00::1", None, 8080, True),
        ("[fd00::/8]:8080", "fd12::1", None, 8080, True),
        ("[fd00::]/8:8080", "fd12::1", None, 80, False),
        ("hooks.internal", "10.1.2.3", "hooks.internal", 80, True),
        ("Hooks.Internal.", "10.1.2.3", "hooks.internal", 80, True),
        ("hooks.internal:8080", "10.1.2.3", "hooks.internal", 8080, True),
        ("hooks.internal:8080", "10.1.2.3", "hooks.internal", 80, False),
        ("hooks.internal", "10.1.2.3", "evil.hooks.internal", 80, False),
        ("hooks.internal", "10.1.2.3", None, 80, False),
        ("hooks.internal", "169.254.169.254", "hooks.internal", 80, False),
        ("bücher.internal", "10.1.2.3", "xn--bcher-kva.internal", 80, True),
    ],
)
def test_outbound_allow_opens_exactly_what_it_names(
    entry: str, ip: str, host: str | None, port: int, is_permitted: bool
) -> None:
    verdict = judge(ip, allow=OutboundPolicy(False, (entry,)), host=host, port=port)
    assert (verdict is None) is is_permitted


@pytest.mark.parametrize("entry", ["", "10.0.0.0/33", "10.0.0.1/8", "a:b:c", "host:0", "host:99999", "host:x", "1.2.3"])
def test_an_entry_of_outbound_allow_that_means_nothing_is_a_settings_error(entry: str) -> None:
    with pytest.raises(SettingsError, match="outbound_allow"):
        OutboundPolicy(False, (entry,))


def test_an_allowed_name_passes_the_url_check() -> None:
    assert check_url("http://localhost:9000/", OutboundPolicy(False, ("localhost:9000",))).port == 9000
    with pytest.raises(Invalid):
        check_url("http://localhost:9001/", OutboundPolicy(False, ("localhost:9000",)))
