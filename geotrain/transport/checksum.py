"""CRC-32 as in zlib, of anything with a buffer.

On the wire it is always the same CRC. ISA-L computes it with the CPU's carry-less multiplication, ten times faster than
zlib and without the GIL, so that it is used where it is installed (extra `wan`).
"""

from collections.abc import Callable
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


def _fastest() -> tuple[str, Callable[[Buffer, int], int]]:
    try:
        from isal import isal_zlib
    except ImportError:
        import zlib

        return "zlib", zlib.crc32
    return "isal", isal_zlib.crc32


IMPLEMENTATION, _crc32 = _fastest()


def checksum(data: Buffer, start: int = 0) -> int:
    """CRC-32 of data that follows what gave `start`."""
    return _crc32(data, start)
