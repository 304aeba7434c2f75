"""Packets made by hand; checksums are recomputed here in the slow, obvious way."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.testbed.packet import PREFIX, VIRTIO, TcpWindows, cut, is_bare_ack, num_segments, window_scale, wire_bytes

SOURCE, TARGET = bytes([10, 1, 0, 1]), bytes([10, 2, 0, 1])
ACK, SYN, FIN, PSH = 0x10, 2, 1, 8


def ones_sum(data: bytes) -> int:
    data += b"\0" * (len(data) % 2)
    total = sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def tcp(payload: bytes = b"", *, segment: int = 0, flags: int = ACK, window: int = 500, options: bytes = b"",
        partial: bool = True, sequence: int = 1000) -> bytes:  # fmt: skip
    """An IPv4 TCP packet with a virtio header; its checksum is left to the receiver, or complete."""
    length = 20 + len(options)
    ports = struct.pack(">HHIIBBHHH", 40000, 5000, sequence, 1, length // 4 << 4, flags, window, 0, 0)
    segment_bytes = bytearray(ports + options + payload)
    pseudo = SOURCE + TARGET + struct.pack(">HH", 6, len(segment_bytes))
    checksum = ones_sum(pseudo) if partial else 0xFFFF - ones_sum(pseudo + bytes(segment_bytes))
    segment_bytes[16:18] = checksum.to_bytes(2, "big")
    ip = bytearray(struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(segment_bytes), 7, 0x4000, 64, 6, 0) + SOURCE + TARGET)
    ip[10:12] = (0xFFFF - ones_sum(bytes(ip))).to_bytes(2, "big")
    head = VIRTIO.pack(1 if partial else 0, 1 if segment else 0, 20 + length, segment, 20, 16)
    return head + bytes(ip) + bytes(segment_bytes)


def test_a_large_piece_is_many_packets_on_the_wire():
    packet = tcp(bytes(2500), segment=1000)
    assert num_segments(packet) == 3
    assert wire_bytes(packet, 3) == 2500 + 3 * 40
    small = tcp(bytes(100))
    assert (num_segments(small), wire_bytes(small, 1)) == (1, 140)


def test_cutting_gives_the_packets_the_kernel_would_have_made():
    payload = bytes(range(250)) * 10
    packet = tcp(payload, segment=1000, flags=ACK | FIN | PSH)
    parts = [cut(packet, 0, 2), cut(packet, 2, 3)]
    expected = [
        tcp(payload[:2000], segment=1000, flags=ACK),
        tcp(payload[2000:], segment=0, flags=ACK | FIN | PSH, sequence=3000),
    ]
    # The identification counts on; nothing else differs from packets made directly.
    assert parts[0] == expected[0]
    assert parts[1][PREFIX + 4 : PREFIX + 6] == (9).to_bytes(2, "big")
    assert ones_sum(parts[1][PREFIX : PREFIX + 20]) == 0xFFFF
    assert parts[1][PREFIX + 12 :] == expected[1][PREFIX + 12 :]
    assert VIRTIO.unpack_from(parts[1])[:2] == (1, 0)


@given(st.integers(1, 40000), st.integers(100, 9000), st.data())
def test_cut_parts_join_to_the_whole(size: int, segment: int, data: st.DataObject):
    packet = tcp(bytes(i % 251 for i in range(size)), segment=segment)
    segments = num_segments(packet)
    middle = data.draw(st.integers(0, segments))
    parts = [cut(packet, *ends) for ends in ((0, middle), (middle, segments)) if ends[1] > ends[0]]
    assert b"".join(part[PREFIX + 40 :] for part in parts) == packet[PREFIX + 40 :]
    assert sum(num_segments(part) for part in parts) == segments


@pytest.mark.parametrize("partial", [True, False], ids=["partial", "complete"])
def test_a_window_is_held_below_the_limit_and_the_checksum_stays_right(partial: bool):
    windows = TcpWindows()
    scale = b"\x01\x03\x03\x07"
    assert windows.limited(tcp(flags=SYN, window=60000, options=scale), 100_000) == tcp(
        flags=SYN, window=60000, options=scale
    )
    limited = windows.limited(tcp(b"data", window=5000, partial=partial), 100_000)
    assert limited == tcp(b"data", window=100_000 >> 7, partial=partial)
    assert windows.limited(tcp(window=3, partial=partial), 100_000) == tcp(window=3, partial=partial)


@pytest.mark.parametrize(
    ("options", "scale"),
    [
        pytest.param(b"", 0, id="none"),
        pytest.param(b"\x02\x04\x23\x28\x01\x03\x03\x09", 9, id="after-mss"),
        pytest.param(b"\x00\x03\x03\x09", 0, id="after-end"),
        pytest.param(b"\x03\x03\xff\x01", 14, id="too-large"),
        pytest.param(b"\x05\x00\x00\x00", 0, id="broken-length"),
        pytest.param(b"\x01\x01\x03\x03", 0, id="cut-short"),
    ],
)
def test_the_window_scale_of_a_syn(options: bytes, scale: int):
    assert window_scale(tcp(flags=SYN, options=options)) == scale


def test_only_acknowledgements_without_anything_else_may_overtake():
    cases = [tcp(), tcp(options=b"\x01" * 12), tcp(b"x"), tcp(flags=ACK | FIN), tcp(flags=SYN | ACK), b"", tcp()[:40]]
    assert [is_bare_ack(packet) for packet in cases] == [True, True, False, False, False, False, False]


@given(st.binary(max_size=120))
def test_no_bytes_upset_it(packet: bytes):
    packet = VIRTIO.pack(1, 1, 40, 10, 20, 16) + packet
    assert num_segments(packet) >= 1
    assert is_bare_ack(packet) in (True, False)
