"""Names on the wire: 1 to 40 bytes of printable UTF-8, padded with zeros."""

from geotrain.transport.errors import FrameError

NAME_BYTES = 40


def check_name(name: str, what: str) -> str:
    """The name, or a ValueError that says what is wrong with it."""
    if not 0 < len(name.encode(errors="replace")) <= NAME_BYTES or not name.isprintable():
        raise ValueError(f"{what} {name!r} must be 1 to {NAME_BYTES} bytes of printable text")
    return name


def pack_name(name: str) -> bytes:
    """Fixed size; the name has been checked before."""
    return name.encode().ljust(NAME_BYTES, b"\0")


def unpack_name(wire: bytes, what: str) -> str:
    """The name that `pack_name` packed; anything else raises FrameError."""
    try:
        name = check_name(wire.rstrip(b"\0").decode(), what)
    except ValueError as error:
        raise FrameError(f"bad {what}: {error}") from None
    return name
