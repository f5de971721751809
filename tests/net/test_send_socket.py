"""A connection of one thread: its frame arrives whole, its answer is read, errors end it.

Each test runs with the exchange in C and with that in Python.
"""

from __future__ import annotations

import signal
import socket
import struct
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from cometmq.errors import RemotingTimeout, SendFailed
from cometmq.net.send_socket import SendSocket
from cometmq.wire.command import encode_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.usefixtures("each_form")
BIG = bytes(range(256)) * (32 * 1024)
"""More than a socket takes at once."""


@contextmanager
def peer(serve: Callable[[socket.socket], None]) -> Iterator[SendSocket]:
    """A connection to a server on a thread of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            with listener.accept()[0] as connection:
                serve(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        one = SendSocket(f"127.0.0.1:{listener.getsockname()[1]}", 5.0)
        try:
            yield one
        finally:
            one.close()
            thread.join(20)
            assert not thread.is_alive()


@contextmanager
def alarms(handler: Callable[..., None], first_s: float, every_s: float = 0.0) -> Iterator[None]:
    """Signals to the main thread, where tests run."""
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, first_s, every_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def until_closed(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


def test_a_large_frame_arrives_whole_though_signals_interrupt_its_writing():
    found, rung = bytearray(), []

    def serve(connection: socket.socket) -> None:
        while len(found) < len(BIG):
            found.extend(connection.recv(128 * 1024))
            time.sleep(0.002)  # so that the writer blocks
        connection.sendall(encode_answer(1, 0))

    with peer(serve) as one, alarms(lambda *_: rung.append(1), 0.005, 0.005):
        answer = one.exchange(one.next_opaque(), BIG, 20.0)
    assert found == BIG
    assert (answer.code, answer.opaque) == (0, 1)
    assert len(rung) > 3, "no signal came in between"


def test_a_signal_whose_handler_raises_ends_the_wait_and_the_connection():
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with peer(until_closed) as one:
        with alarms(interrupt, 0.05), pytest.raises(KeyboardInterrupt):
            one.exchange(one.next_opaque(), b"ask", 20.0)
        with pytest.raises(SendFailed, match="broke"):
            one.exchange(one.next_opaque(), b"ask again", 1.0)


def test_no_answer_in_time_is_a_timeout_that_closes_the_connection():
    with peer(until_closed) as one:
        begun = time.monotonic()
        with pytest.raises(RemotingTimeout, match="no answer"):
            one.exchange(one.next_opaque(), b"ask", 0.2)
        assert 0.15 < time.monotonic() - begun < 5
        with pytest.raises(SendFailed, match="broke"):
            one.exchange(one.next_opaque(), b"ask again", 1.0)


def test_a_frame_that_the_peer_does_not_read_is_a_timeout_too():
    is_over = threading.Event()
    with peer(lambda _: is_over.wait(20)) as one:
        begun = time.monotonic()
        with pytest.raises(RemotingTimeout):
            one.exchange(one.next_opaque(), BIG, 0.2)
        assert 0.15 < time.monotonic() - begun < 5
        is_over.set()


def test_a_frame_that_the_peer_reads_slowly_is_a_timeout_as_a_whole():
    is_over = threading.Event()

    def drain(connection: socket.socket) -> None:
        while not is_over.wait(0.01):
            connection.recv(8 * 1024)

    with peer(drain) as one:
        begun = time.monotonic()
        with pytest.raises(RemotingTimeout):
            one.exchange(one.next_opaque(), BIG, 0.3)
        assert 0.25 < time.monotonic() - begun < 3
        is_over.set()


def test_a_signal_whose_handler_raises_ends_the_writing():
    class Rung(Exception):
        pass

    def ring(*_: object) -> None:
        raise Rung

    is_over = threading.Event()
    with peer(lambda _: is_over.wait(20)) as one:
        begun = time.monotonic()
        with alarms(ring, 0.1), pytest.raises(Rung):
            one.exchange(one.next_opaque(), BIG, 15.0)
        assert time.monotonic() - begun < 5
        is_over.set()


def test_signals_do_not_lengthen_the_time_that_writing_and_reading_on_may_take():
    """The form in Python bounds a read before which there was no full socket by the last signal."""
    is_over, rung = threading.Event(), []
    first = encode_answer(1, 1)[:5]

    def serve(connection: socket.socket) -> None:
        connection.sendall(first)
        is_over.wait(20)

    for frame in (b"ask", BIG):
        is_over.clear()
        with peer(serve) as one, alarms(lambda *_: rung.append(1), 0.05, 0.05):
            begun = time.monotonic()
            with pytest.raises(RemotingTimeout):
                one.exchange(one.next_opaque(), frame, 0.4)
            assert 0.35 < time.monotonic() - begun < 5
            is_over.set()
    assert len(rung) > 3


def test_signals_do_not_lengthen_a_wait_in_c(each_form: str):
    if each_form != "c":
        pytest.skip("in Python each signal begins the time again")
    rung: list[int] = []
    with peer(until_closed) as one, alarms(lambda *_: rung.append(1), 0.05, 0.05):
        begun = time.monotonic()
        with pytest.raises(RemotingTimeout):
            one.exchange(one.next_opaque(), b"ask", 0.4)
        assert 0.35 < time.monotonic() - begun < 5
    assert len(rung) > 3


def test_after_a_large_frame_a_small_one_is_bound_as_before():
    def serve(connection: socket.socket) -> None:
        for opaque, count in ((1, len(BIG)), (2, 3)):
            while count:
                count -= len(connection.recv(min(count, 128 * 1024)))
            connection.sendall(encode_answer(opaque, 0))
        until_closed(connection)

    with peer(serve) as one:
        assert one.exchange(one.next_opaque(), BIG, 20.0).opaque == 1
        assert one.exchange(one.next_opaque(), b"ask", 20.0).opaque == 2
        begun = time.monotonic()
        with pytest.raises(RemotingTimeout):
            one.exchange(one.next_opaque(), b"ask", 0.2)
        assert time.monotonic() - begun < 5


def test_a_connection_that_is_reset_is_an_error_that_names_the_peer():
    def reset(connection: socket.socket) -> None:
        connection.recv(100)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with peer(reset) as one, pytest.raises(SendFailed, match=one.addr):
        one.exchange(one.next_opaque(), b"ask", 5.0)


def test_threads_run_while_one_waits():
    is_asked, go_on = threading.Event(), threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(100)
        is_asked.set()
        assert go_on.wait(20), "the interpreter's lock was held"
        connection.sendall(encode_answer(1, 7))

    with peer(serve) as one:
        helper = threading.Thread(target=lambda: is_asked.wait(20) and go_on.set())
        helper.start()
        assert one.exchange(one.next_opaque(), b"ask", 20.0).code == 7
        helper.join()
