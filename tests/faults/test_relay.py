"""The relay plays each fault, and only that one."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import URL

from tests.faults import Direction, Relay

PATIENCE = 5.0
DELAY = 0.2
SILENCE = 0.15


@pytest.fixture(scope="module")
def echo() -> Iterator[URL]:
    """Return the address of a server that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(client,), daemon=True).start()

        def answer(client: socket.socket) -> None:
            with client:
                while piece := client.recv(1000):
                    client.sendall(piece)

        threading.Thread(target=serve, daemon=True).start()
        yield URL.create("postgresql", host="127.0.0.1", port=listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def relay(echo: URL) -> Iterator[Relay]:
    with Relay(echo) as relay:
        yield relay


def connection(relay: Relay) -> socket.socket:
    return socket.create_connection(("127.0.0.1", relay.url.port or 0), timeout=PATIENCE)


def asked(client: socket.socket, word: bytes = b"word") -> bytes:
    client.sendall(word)
    return client.recv(1000)


def ended(client: socket.socket) -> bool:
    """Tell whether the connection ends, by either kind of end."""
    try:
        return client.recv(1000) == b""
    except ConnectionResetError:
        return True


def test_it_passes_bytes_on(relay: Relay) -> None:
    with connection(relay) as client:
        assert asked(client) == b"word"


@pytest.mark.parametrize("direction", list(Direction))
def test_it_delays_one_direction(relay: Relay, direction: Direction) -> None:
    with connection(relay) as client:
        assert asked(client) == b"word"
        relay.delay(DELAY, direction)
        began = time.monotonic()
        assert asked(client) == b"word"
        assert time.monotonic() - began >= DELAY


def test_it_loses_one_answer_with_its_connection_and_no_other(relay: Relay) -> None:
    with connection(relay) as client, connection(relay) as other:
        assert asked(client) == asked(other) == b"word"
        relay.lose_next_answer()
        client.sendall(b"lost")
        assert ended(client)
        assert relay.lost.is_set()
        assert asked(other) == b"word"


def test_it_refuses_after_a_lost_answer_until_told_to_pass_on(relay: Relay) -> None:
    with connection(relay) as client:
        relay.lose_next_answer(then_refuse=True)
        client.sendall(b"lost")
        assert ended(client)
    assert relay.lost.wait(PATIENCE)
    with connection(relay) as refused:
        assert ended(refused)
    relay.pass_on()
    with connection(relay) as admitted:
        assert asked(admitted) == b"word"


def test_silence_closes_nothing_and_loses_nothing(relay: Relay) -> None:
    with connection(relay) as client:
        assert asked(client) == b"word"
        relay.fall_silent()
        client.sendall(b"held back")
        client.settimeout(SILENCE)
        with pytest.raises(TimeoutError):
            client.recv(1000)
        relay.pass_on()
        client.settimeout(PATIENCE)
        assert client.recv(1000) == b"held back"


def test_a_silent_connection_can_be_cut(relay: Relay) -> None:
    with connection(relay) as client:
        assert asked(client) == b"word"
        relay.fall_silent()
        relay.cut()
        assert ended(client)


def test_a_cut_admits_new_connections(relay: Relay) -> None:
    with connection(relay) as client:
        assert asked(client) == b"word"
        relay.cut()
        assert ended(client)
    with connection(relay) as later:
        assert asked(later) == b"word"


def test_its_end_ends_every_connection_also_in_silence(echo: URL) -> None:
    with Relay(echo) as relay:
        client = connection(relay)
        assert asked(client) == b"word"
        relay.fall_silent()
    with client:
        assert ended(client)
