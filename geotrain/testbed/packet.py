"""Packets as a TUN device with offload gives them: a virtio header, then IPv4, with up to 64 KB of TCP in one piece.

Pure functions on bytes. The large pieces are what makes a forwarder in Python fast; where one segment of a piece must
go missing, the piece is cut as the kernel would have cut it.
"""

import struct
import sys

VIRTIO = struct.Struct("=BBHHHH")
"""flags, gso_type, hdr_len, gso_size, csum_start, csum_offset"""
PREFIX = VIRTIO.size
NEEDS_CHECKSUM = 1
ROUTE = slice(PREFIX + 12, PREFIX + 20)
"""Source and target address."""
TCP, NO_IP_OPTIONS = 6, 0x45
_TCP_AT = PREFIX + 20
CONNECTION = slice(PREFIX + 12, PREFIX + 24)
"""Addresses and ports of a TCP packet without IP options."""
_FIN, _SYN, _PSH, _ACK, _CWR = 1, 2, 8, 0x10, 0x80
_SHORTEST_HEADER = 5 << 4
_WINDOW_SCALE, _NO_OPERATION, _END_OF_OPTIONS = 3, 1, 0


def is_tcp(packet: bytes) -> bool:
    """Whether the functions below understand it: IPv4 without options, a whole TCP header."""
    return (
        len(packet) >= _TCP_AT + 20
        and packet[PREFIX] == NO_IP_OPTIONS
        and packet[PREFIX + 9] == TCP
        and packet[_TCP_AT + 12] >= _SHORTEST_HEADER
    )


def is_bare_ack(packet: bytes) -> bool:
    """Whether it is TCP that only acknowledges: it may overtake data, also of its own connection."""
    return (
        len(packet) <= _TCP_AT + 60
        and is_tcp(packet)
        and len(packet) == _headers(packet)
        and packet[_TCP_AT + 13] == _ACK
    )


def num_segments(packet: bytes) -> int:
    """How many packets it is on a wire."""
    segment_bytes = int.from_bytes(packet[4:6], sys.byteorder) if packet[1] else 0
    if not segment_bytes or not is_tcp(packet):
        return 1
    return max(1, -(-(len(packet) - _headers(packet)) // segment_bytes))


def wire_bytes(packet: bytes, segments: int) -> int:
    """Its size on a wire, where every segment has headers of its own."""
    return len(packet) - PREFIX + (segments - 1) * (_headers(packet) - PREFIX if segments > 1 else 0)


def _headers(packet: bytes) -> int:
    return _TCP_AT + (packet[_TCP_AT + 12] >> 4) * 4


def cut(packet: bytes, start: int, end: int) -> bytes:
    """The segments from `start` up to `end` of a TCP packet, as a packet of their own."""
    flags, gso_type, header_bytes, segment_bytes, checksum_at, checksum_offset = VIRTIO.unpack_from(packet)
    headers = _headers(packet)
    first, last = headers + start * segment_bytes, min(len(packet), headers + end * segment_bytes)
    head = bytearray(packet[:headers])
    if end - start == 1:
        gso_type = segment_bytes = 0
    VIRTIO.pack_into(head, 0, flags, gso_type, header_bytes, segment_bytes, checksum_at, checksum_offset)
    identity = int.from_bytes(head[PREFIX + 4 : PREFIX + 6], "big") + start
    struct.pack_into(">HH", head, PREFIX + 2, headers - PREFIX + last - first, identity & 0xFFFF)
    head[PREFIX + 10 : PREFIX + 12] = b"\0\0"
    head[PREFIX + 10 : PREFIX + 12] = (0xFFFF - _ones_sum(head[PREFIX:_TCP_AT])).to_bytes(2, "big")
    sequence = int.from_bytes(head[_TCP_AT + 4 : _TCP_AT + 8], "big") + first - headers
    struct.pack_into(">I", head, _TCP_AT + 4, sequence & 0xFFFFFFFF)
    if last < len(packet):
        head[_TCP_AT + 13] &= ~(_FIN | _PSH)
    if start:
        head[_TCP_AT + 13] &= ~_CWR
    # A large piece always comes with its checksum left to the receiver: only the pseudo header is summed.
    pseudo = bytes(head[ROUTE]) + struct.pack(">HH", TCP, headers - _TCP_AT + last - first)
    head[_TCP_AT + 16 : _TCP_AT + 18] = _ones_sum(pseudo).to_bytes(2, "big")
    return bytes(head) + packet[first:last]


def _ones_sum(data: bytes | bytearray) -> int:
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def window_scale(packet: bytes) -> int:
    """The window scale that a SYN announces; 0 without the option."""
    at, end = _TCP_AT + 20, min(len(packet), _headers(packet))
    while at < end and packet[at] != _END_OF_OPTIONS:
        if packet[at] == _NO_OPERATION:
            at += 1
            continue
        if at + 2 >= end or packet[at + 1] < 2:
            break
        if packet[at] == _WINDOW_SCALE:
            return min(packet[at + 2], 14)
        at += packet[at + 1]
    return 0


class TcpWindows:
    """Holds the TCP windows that receivers announce below a limit, whatever buffers their programs ask for."""

    MOST_CONNECTIONS = 65536

    def __init__(self) -> None:
        self._scales: dict[bytes, int] = {}

    def limited(self, packet: bytes, limit_bytes: int) -> bytes:
        """The packet with its window at most `limit_bytes`."""
        connection = packet[CONNECTION]
        if packet[_TCP_AT + 13] & _SYN:
            self._scales.pop(connection, None)
            if len(self._scales) >= self.MOST_CONNECTIONS:
                self._scales.pop(next(iter(self._scales)))
            self._scales[connection] = window_scale(packet)
            # The window of a SYN is not scaled.
            return _with_window(packet, min(limit_bytes, 0xFFFF))
        scale = self._scales.get(connection, 0)
        return _with_window(packet, min(max(limit_bytes >> scale, 1), 0xFFFF))


def _with_window(packet: bytes, most: int) -> bytes:
    at = _TCP_AT + 14
    window = (packet[at] << 8) | packet[at + 1]
    if window <= most:
        return packet
    checksum = packet[at + 2 : at + 4]
    if not packet[0] & NEEDS_CHECKSUM:
        # RFC 1624, equation 3.
        total = (0xFFFF - int.from_bytes(checksum, "big")) + (0xFFFF - window) + most
        while total > 0xFFFF:
            total = (total & 0xFFFF) + (total >> 16)
        checksum = (0xFFFF - total).to_bytes(2, "big")
    return b"".join((packet[:at], most.to_bytes(2, "big"), checksum, packet[at + 4 :]))
