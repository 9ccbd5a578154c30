"""What the network does wrong, each in one line, and whether another try may help."""

import http.client
import socket
import ssl
from pathlib import Path

import pytest
import requests
import urllib3
from requests import exceptions

from sifmod.cli.main import run
from sifmod.errors import FetchError
from sifmod.image.registry.network import (
    SlowError,
    TooSlowError,
    TransientError,
    causes,
    connection_closed,
    network_errors,
)

POOL = urllib3.HTTPSConnectionPool("host", 5000)
REFUSED = urllib3.exceptions.NewConnectionError(
    urllib3.connection.HTTPSConnection("host"), "Failed to establish a new connection: [Errno 111] Connection refused"
)
NO_NAME = urllib3.exceptions.MaxRetryError(POOL, "/x", socket.gaierror(-2, "Name or service not known"))
ABORTED = urllib3.exceptions.ProtocolError("Connection aborted.", ConnectionResetError(104, "Connection reset by peer"))


def told(error: Exception, host: str = "host:5000") -> FetchError:
    with pytest.raises(FetchError) as caught, network_errors(host):
        raise error
    assert caught.value.__cause__ is error
    return caught.value


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (exceptions.ConnectionError(urllib3.exceptions.MaxRetryError(POOL, "/x", REFUSED)), "Connection refused"),
        (exceptions.ConnectionError(NO_NAME), "Name or service not known"),
        (exceptions.ConnectionError(ABORTED), "Connection reset by peer"),
        (exceptions.ConnectTimeout("Connection to host timed out. (connect timeout=5)"), None),
        (http.client.IncompleteRead(b"x", 5), "IncompleteRead(1 bytes read, 5 more expected)"),
        (urllib3.exceptions.DecodeError("no gzip"), "no gzip"),
        (ssl.SSLError(1, "decryption failed"), "decryption failed"),
        (ConnectionResetError(104, "Connection reset by peer"), "Connection reset by peer"),
        (exceptions.SSLError("EOF occurred in violation of protocol"), "EOF occurred in violation of protocol"),
        (exceptions.SSLError("Connection Reset by peer"), "Connection Reset by peer"),
    ],
)
def test_what_breaks_off_may_be_tried_again(error: Exception, message: str | None) -> None:
    found = told(error)
    assert isinstance(found, TransientError)
    assert not isinstance(found, SlowError)
    assert found.message == f"host:5000 cannot be reached or closed the connection: {message or error}"
    here, unknown = "check whether this node has a network", message == "Name or service not known"
    named = f"{here}, or needs a proxy (https_proxy) or a mirror (`mirrors` of the site); or correct the name host:5000"
    hint = f"{named} in the source" if unknown else f"try again, or {here}"
    assert (found.hint, found.retry_after) == (hint, None)


def test_a_name_that_nobody_typed_is_not_to_be_corrected() -> None:
    """Docker Hub's own servers are behind `docker://ubuntu`."""
    for host in ("registry-1.docker.io", "auth.docker.io", "production.cloudflare.docker.com"):
        found = told(exceptions.ConnectionError(NO_NAME), host)
        assert "a proxy (https_proxy) or a mirror" in found.hint
        assert "correct" not in found.hint


def test_a_host_that_is_not_there(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["fetch", "docker://no-such-host.invalid/x:1", "--prefix", str(tmp_path / "p")]) == 10
    assert "or correct the name no-such-host.invalid in the source" in capfd.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ReadTimeout(urllib3.exceptions.ReadTimeoutError(POOL, "/x", "Read timed out. (read timeout=5)")),
        exceptions.SSLError("The read operation timed out"),
        TimeoutError("timed out"),
    ],
)
def test_a_server_that_says_nothing_more_has_stopped(error: Exception) -> None:
    found = told(error)
    assert isinstance(found, TransientError)
    assert found.message == "host:5000 stopped responding"


def test_a_server_that_is_too_slow_is_told_as_such() -> None:
    slow = TooSlowError("the response was not complete after 5 seconds")
    for error in (slow, exceptions.ConnectionError(urllib3.exceptions.ProtocolError("Connection broken", slow))):
        found = told(error)
        assert isinstance(found, SlowError)
        assert found.message == "host:5000 is too slow: the response was not complete after 5 seconds"


def test_a_proxy_is_told_as_such() -> None:
    found = told(exceptions.ProxyError(urllib3.exceptions.MaxRetryError(POOL, "/x", REFUSED)))
    assert isinstance(found, TransientError)
    assert found.message == "host:5000: the proxy: Connection refused"
    assert found.hint == "see the variables https_proxy and no_proxy"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            exceptions.SSLError(ssl.SSLError(1, "certificate verify failed")),
            "host:5000: its certificate or its TLS cannot be trusted: certificate verify failed",
        ),
        (exceptions.InvalidURL("no host\x1b"), "host:5000: no host"),
        (exceptions.InvalidHeader("odd"), "host:5000: odd"),
    ],
)
def test_what_no_other_try_helps(error: Exception, message: str) -> None:
    found = told(error)
    assert not isinstance(found, TransientError)
    assert found.message == message
    assert ("~/.config/containers/certs.d/host:5000/ca.crt" in found.hint) is ("certificate" in message)


def test_a_failure_of_a_disk_is_none_of_the_network() -> None:
    with pytest.raises(OSError, match="No space"), network_errors("host"):
        raise OSError(28, "No space left on device")


def test_an_error_and_what_it_wraps() -> None:
    inner = ConnectionResetError(104, "Connection reset by peer")
    middle = urllib3.exceptions.ProtocolError("Connection aborted.", inner)
    outer = exceptions.ConnectionError(middle)
    assert list(causes(outer)) == [outer, middle, inner]
    retries = urllib3.exceptions.MaxRetryError(POOL, "/x", REFUSED)
    assert list(causes(exceptions.ConnectionError(retries)))[1:] == [retries, REFUSED]


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        (ConnectionResetError(), True),
        (ConnectionAbortedError(), True),
        (BrokenPipeError(), True),
        (http.client.RemoteDisconnected("closed"), True),
        (ConnectionRefusedError(), False),
        (http.client.BadStatusLine("x"), False),
        (TimeoutError(), False),
    ],
)
def test_who_hung_up(inner: Exception, expected: bool) -> None:
    assert connection_closed(requests.ConnectionError(urllib3.exceptions.ProtocolError("x", inner))) is expected
    assert connection_closed(inner) is expected
