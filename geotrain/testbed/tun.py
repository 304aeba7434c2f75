"""TUN devices that hand over TCP in pieces of up to 64 KB."""

import fcntl
import os
import struct

from geotrain.errors import RunError

_TUN, _NO_PACKET_INFO, _VNET_HEADER = 0x0001, 0x1000, 0x4000
_SET_DEVICE, _SET_OFFLOAD = 0x400454CA, 0x400454D0
_CHECKSUM, _TCP4_SEGMENTS, _TCP_ECN = 0x01, 0x02, 0x08
MOST_BYTES = 10 + 65536
"""The largest packet with its virtio header."""


def open_tun(name: str) -> int:
    """A new device in the present network namespace, as a non-blocking file; gone when the file is closed."""
    try:
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        remedy = "; `chmod 666 /dev/net/tun` as root opens it to all" if isinstance(error, PermissionError) else ""
        raise RunError(
            f"/dev/net/tun cannot be opened ({error.strerror}): the userspace WAN needs TUN{remedy}"
        ) from None
    try:
        request = struct.pack("16sH22x", name.encode(), _TUN | _NO_PACKET_INFO | _VNET_HEADER)
        fcntl.ioctl(device, _SET_DEVICE, request)
        fcntl.ioctl(device, _SET_OFFLOAD, _CHECKSUM | _TCP4_SEGMENTS | _TCP_ECN)
    except OSError as error:
        os.close(device)
        raise RunError(f"the TUN device {name!r} cannot be made: {error.strerror}") from None
    return device
