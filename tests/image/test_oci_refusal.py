"""What a registry's or a web server's refusal is told as: which advice, and whether asking again may help."""

import json
import re
import time

import pytest

from sifmod.errors import FetchError
from sifmod.image.registry.credentials import Netrc
from sifmod.image.registry.http import TransientError, read_beginning, refusal, retry_after
from sifmod.image.registry.mirrors import Place
from sifmod.image.registry.refused import refused_by
from support.responses import answered

HUB = Place("docker.io", "a/b")


def limited(**headers: str) -> FetchError:
    return refused_by(answered(429, {name.replace("_", "-"): value for name, value in headers.items()}), HUB, "", ())


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({}, ""),
        ({"RateLimit_Limit": "none", "RateLimit_Remaining": "-1", "X_RateLimit_Reset": "soon"}, ""),
        ({"RateLimit_Limit": "100;w=21600"}, "100 pulls in 6 hours; "),
        ({"RateLimit_Limit": " 100 ; w=5400", "RateLimit_Remaining": "7;w=5400"}, "100 pulls in 1.5 hours, 7 left; "),
        ({"RateLimit_Limit": "100"}, "100 pulls; "),
        ({"RateLimit_Limit": "0"}, "0 pulls; "),
        ({"RateLimit_Remaining": "0"}, "0 left; "),
        ({"RateLimit_Limit": "100;w=21600", "X_RateLimit_Reset": "120"}, "100 pulls in 6 hours, retry in 2 minutes; "),
        ({"X_RateLimit_Reset": "1000000001"}, "retry in 0 minutes; "),  # it was long ago
        ({"X_RateLimit_Reset": "\u0661"}, ""),
        ({"X_RateLimit_Reset": "1" * 13}, ""),
    ],
)
def test_what_is_known_of_a_limit_is_told(headers: dict[str, str], told: str) -> None:
    hint = limited(**headers).hint
    assert hint.startswith(f"{told}the whole cluster may share one address and one limit: ")


def test_when_a_limit_ends_may_be_told_in_twelve_digits() -> None:
    in_an_hour = f"{int(time.time()) + 3610:012}"
    assert limited(X_RateLimit_Reset=in_an_hour).hint.startswith("retry in 60 minutes; ")


@pytest.mark.parametrize(
    ("left", "window", "final"), [("0", 21600, True), ("0", 601, True), ("0", 600, False), ("3", 21600, False)]
)
def test_nobody_asks_again_for_hours(left: str, window: int, final: bool) -> None:
    error = limited(RateLimit_Limit=f"100;w={window}", RateLimit_Remaining=f"{left};w={window}")
    assert isinstance(error, TransientError) is not final


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"errors": [{"message": "one"}, {"message": "two"}]}, ": one"),
        ({"errors": [], "message": "outside"}, ": outside"),
        ({"errors": {"message": "inside"}, "message": "outside"}, ": outside"),
        ({"errors": ["words"], "message": "outside"}, ""),
        ({"message": "", "details": "wrong password"}, ": wrong password"),
        ({"message": 5, "error_description": "stale\n token"}, ": stale token"),
        ({"message": None}, ""),
        ({"detail": "x"}, ""),
        (["message"], ""),
        ("message", ""),
    ],
)
def test_the_registrys_own_words_are_told(body: object, said: str) -> None:
    error = refused_by(answered(404, body=json.dumps(body).encode()), HUB, "", ())
    assert error.message == f"host:5000 answered 404 In deed{said}"


@pytest.mark.parametrize("body", [b"", b"<html>no</html>", b"\xff", b"[" * 50_000])
def test_what_is_no_message_is_not_told(body: bytes) -> None:
    assert refused_by(answered(404, body=body), HUB, "", ()).message == "host:5000 answered 404 In deed"


@pytest.mark.parametrize(("status", "told"), [(401, True), (403, True), (404, False), (500, False)])
def test_what_was_wrong_with_a_login_is_told_where_one_is_wanted(status: int, told: bool) -> None:
    hint = refused_by(answered(status), HUB, "", ("one", "two")).hint
    assert hint.startswith("one; two; ") is told
    assert not refused_by(answered(status), HUB, "", ()).hint.startswith(";")


@pytest.mark.parametrize(
    "host", ["nvcr.io.example.org", "ghcr.io.example.org", "1.dkr.ecr.eu.amazonaws.com.example.org"]
)
def test_a_name_that_begins_like_a_known_one_is_another_registry(host: str) -> None:
    for status, advice in (
        (401, "correct the name, because a missing repository"),
        (403, "a user without a login may"),
    ):
        assert refused_by(answered(status), Place(host, "a/b"), "", ()).hint.startswith(advice)


@pytest.mark.parametrize("login", ["", "~/x"])
@pytest.mark.parametrize("host", ["docker.io", "ghcr.io", "registry.gitlab.com", "nvcr.io", "some.host"])
def test_the_right_that_is_named_is_that_of_what_was_refused(host: str, login: str) -> None:
    """Who pushes is told to get none to read, and who reads none to write, whatever the registry and the status."""
    for status in (400, 401, 403, 404, 405, 409, 412, 429, 500, 507):
        reading = refused_by(answered(status), Place(host, "a/b"), login, ()).hint
        writing = refused_by(answered(status), Place(host, "a/b"), login, (), pushing=True).hint
        assert not re.search("write|push", reading), (status, reading)
        assert not re.search(r"`read|read:|read_|may not read|pull\b|missing repository", writing), (status, writing)
    hint = refused_by(answered(401), Place(host, "a/b"), login, (), pushing=True).hint
    assert ("`write" in hint) == (host in ("ghcr.io", "registry.gitlab.com"))


@pytest.mark.parametrize("host", ["1.dkr.ecr-fips.us-east-1.amazonaws.com", "1.dkr.ecr.cn-north-1.amazonaws.com.cn"])
def test_every_form_of_ecr_is_known(host: str) -> None:
    assert refused_by(answered(403), Place(host, "a/b"), "", ()).hint.startswith("ECR needs a login: `aws ecr get-")


@pytest.mark.parametrize(
    ("status", "transient", "hint"),
    [
        (408, True, "check the URL"),
        (429, True, "check the URL"),
        (500, True, "the server has a problem: try again later"),
        (599, True, "the server has a problem: try again later"),
        (499, False, "check the URL"),
        (404, False, "check the URL"),
    ],
)
def test_trouble_may_pass_and_a_no_does_not(status: int, transient: bool, hint: str) -> None:
    error = refusal(answered(status), "")
    assert (isinstance(error, TransientError), error.hint) == (transient, hint)
    assert error.message == f"host:5000 answered {status} In deed"
    assert refusal(answered(status), "own advice").hint == "own advice"
    assert not isinstance(refusal(answered(status), "", final=True), TransientError)


@pytest.mark.parametrize(("after", "transient"), [("0", True), ("600", True), ("601", False)])
def test_a_server_that_wants_us_much_later_is_not_waited_for(after: str, transient: bool) -> None:
    error = refusal(answered(503, {"Retry-After": after}), "own advice")
    assert isinstance(error, TransientError) is transient
    assert error.hint == f"own advice; the server asks to retry in {after} seconds"
    if isinstance(error, TransientError):
        assert error.retry_after == float(after)


def test_what_a_server_answers_steers_no_terminal() -> None:
    error = refusal(answered(404, url="https://host/x"), "", "no\x1b[2J way")
    assert error.message == "host answered 404 In deed: no [2J way"
    silent = answered(404)
    silent.reason = ""
    assert refusal(silent, "").message == "host:5000 answered 404"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (" 7 ", 7),
        ("1000000000", 1e9),
        ("1000000001", 0),  # of 2001
        ("1" * 13, None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Wed, 21 Oct 99999 07:28:00 GMT", None),
        ("\u0661", None),
    ],
)
def test_when_to_come_back(text: str, seconds: float | None) -> None:
    assert retry_after(answered(503, {"Retry-After": text})) == seconds


def test_without_a_word_about_it() -> None:
    assert retry_after(answered(503)) is None


def test_of_what_is_said_with_an_error_the_beginning_is_read() -> None:
    assert read_beginning(answered(404, body=b"x" * 100_000)) == b"x" * (1 << 16)
    assert read_beginning(answered(404, {"Content-Encoding": "gzip"}, b"no gzip")) == b""
    closed = answered(404, body=b"x")
    closed.raw.close()
    assert read_beginning(closed) == b""


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, "give your credentials for this host in ~/.netrc"),
        (403, "ask the owner for access; "),
        (404, "check whether the file has moved"),
        (407, "the proxy requires credentials"),
        (410, "the file was withdrawn"),
        (429, "the server limits the request rate"),
        (418, "check the URL"),
    ],
)
def test_a_web_servers_refusal_comes_with_advice(status: int, advice: str) -> None:
    assert Netrc().refused(answered(status)).hint.startswith(advice)
    assert not Netrc().renew(answered(401), "")
