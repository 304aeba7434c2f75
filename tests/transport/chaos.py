"""A forwarder between two nodes that breaks connections, and changes bytes, when told to."""

import random
import socket
import struct
import threading
from contextlib import suppress
from typing import Self


class Chaos:
    """Listens on loopback and forwards every connection to `target`."""

    def __init__(self, target: tuple[str, int], seed: int = 0) -> None:
        self._target = target
        self._luck = random.Random(seed)
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._corrupt = threading.Event()
        self._stuck: set[socket.socket] = set()
        self._over = threading.Event()
        self._closed = False
        self._sock = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._sock.getsockname()
        return host, port

    def kill_one(self) -> bool:
        """Reset a connection, both ways, wherever it is in its stream."""
        with self._lock:
            if not self._pairs:
                return False
            pair = self._pairs.pop(self._luck.randrange(len(self._pairs)))
        for sock in pair:
            with suppress(OSError):
                # Closing with this option resets the connection and throws away what is on its way.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.shutdown(socket.SHUT_RDWR)
                sock.close()
        return True

    def kill_all(self) -> None:
        while self.kill_one():
            pass

    def corrupt_one(self) -> None:
        """Change a bit in what is forwarded next."""
        self._corrupt.set()

    def stick(self) -> None:
        """Forward nothing more on the connections of now; they stay open, and new ones work."""
        with self._lock:
            self._stuck.update(sock for pair in self._pairs for sock in pair)

    def close(self) -> None:
        self._closed = True
        self._over.set()
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        self.kill_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._sock.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._pairs.append((near, far))
            threading.Thread(target=self._serve, args=(near, far), daemon=True).start()

    def _serve(self, near: socket.socket, far: socket.socket) -> None:
        back = threading.Thread(target=self._forward, args=(far, near), daemon=True)
        back.start()
        self._forward(near, far)
        back.join()
        near.close()
        far.close()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while part := bytearray(source.recv(1 << 16)):
                if len(part) > 1000 and self._corrupt.is_set():
                    self._corrupt.clear()
                    part[len(part) // 2] ^= 1
                if source in self._stuck:
                    self._over.wait()
                sink.sendall(part)
            sink.shutdown(socket.SHUT_WR)
            return
        # One end is broken: so must be the other.
        for sock in (source, sink):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
