"""One resource of a server: how often and where it is asked for, what counts as an answer, which mirror is asked."""

import gzip
import json
from collections.abc import Callable, Iterator

import pytest
import requests

from sifmod.errors import FetchError, ImageError
from sifmod.image.artifact import Get
from sifmod.image.oci.content import LARGEST
from sifmod.image.oci.manifest import Descriptor, Manifest
from sifmod.image.registry.credentials import Netrc
from sifmod.image.registry.http import Http, RequestSpec, TransientError, in_the_clear
from sifmod.image.registry.mirrors import Place
from sifmod.image.registry.network import RetryPolicy
from sifmod.image.registry.registry import Registry, Repository
from sifmod.image.registry.url import Url
from sifmod.image.settings import Settings
from sifmod.image.sources.source_kinds import parse
from support.misbehaving import BLOB, CONFIG, LAYER, MANIFEST, Misbehaving, client, descriptor, digest
from support.web import Answer, Handler, Web, answer, raw


@pytest.fixture
def start() -> Iterator[Callable[[], Misbehaving]]:
    running: list[Web] = []

    def start() -> Misbehaving:
        running.append(server := Misbehaving())
        server.start()
        return server

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def web(start: Callable[[], Misbehaving]) -> Misbehaving:
    return start()


def get(web: Web, path: str, insecure: tuple[str, ...] = ()) -> Get:
    return Http(insecure).resource(Url.parse(web.url(path, "127.0.0.1")), Netrc())


def read(opened: Get) -> bytes:
    with opened({}) as response:
        return response.content


def refused(opened: Get) -> FetchError:
    with pytest.raises(FetchError) as caught:
        read(opened)
    return caught.value


def in_turn(*answers: Answer) -> Answer:
    left = list(answers)
    return lambda handler: (left.pop(0) if len(left) > 1 else left[0])(handler)


def chain(web: Web, redirects: int, status: int = 302) -> None:
    for number in range(redirects):
        web.answers[f"/{number}"] = answer(status, b"moved", {"Location": f"{number + 1}"})
    web.answers[f"/{redirects}"] = answer(200, b"here")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_ten_redirects_are_followed_and_no_more(web: Misbehaving, status: int) -> None:
    chain(web, 10, status)
    assert read(get(web, "/0")) == b"here"
    chain(web, 11, status)
    asked = len(web.asked)
    assert refused(get(web, "/0")).message == f"more than 10 redirects, the last one to {web.url('/11', '127.0.0.1')}"
    assert len(web.asked) == asked + 11


@pytest.mark.parametrize("status", [201, 204, 300, 304, 400])
def test_what_is_neither_the_resource_nor_a_redirect_is_refused(web: Misbehaving, status: int) -> None:
    web.answers["/x"] = answer(status, b"", {"Location": "/elsewhere"})
    assert f" answered {status} " in refused(get(web, "/x")).message
    assert len(web.asked) == 1


@pytest.mark.parametrize("status", [200, 206, 416])
def test_what_counts_as_an_answer(web: Misbehaving, status: int) -> None:
    web.answers["/x"] = answer(status, b"content")
    assert read(get(web, "/x")) == b"content"


class Renewing:
    """Lets nobody in, and has another password each time."""

    def __init__(self) -> None:
        self.number = 0

    def authorization(self, url: Url) -> str:
        return f"Basic {self.number}" if url else ""

    def renew(self, response: requests.Response, sent: str) -> bool:
        assert (response.status_code, sent) == (401, f"Basic {self.number}")
        self.number += 1
        return True

    def refused(self, response: requests.Response) -> FetchError:
        return FetchError(f"refused {response.status_code}")


def test_two_other_passwords_are_tried_and_no_more(web: Misbehaving) -> None:
    web.answers["/x"] = answer(401, b"no")
    assert refused(Http().resource(Url.parse(web.url("/x")), Renewing())).message == "refused 401"
    assert [headers["authorization"] for _, headers in web.asked] == ["Basic 0", "Basic 1", "Basic 2"]
    web.answers["/x"] = answer(403, b"no")
    assert refused(Http().resource(Url.parse(web.url("/x")), Renewing())).message == "refused 403"
    assert len(web.asked) == 4


def test_who_hangs_up_without_a_word_is_asked_once_more(web: Misbehaving) -> None:
    web.answers["/x"] = in_turn(raw(), answer(200, b"content"))
    assert read(get(web, "/x")) == b"content"
    web.answers["/x"] = raw()
    assert isinstance(refused(get(web, "/x")), TransientError)
    assert len(web.asked) == 4
    web.answers["/x"] = raw(b"\0 no HTTP\r\n\r\n")
    assert isinstance(refused(get(web, "/x")), TransientError)
    assert len(web.asked) == 5


def test_a_form_is_answered_with_200_or_refused(web: Misbehaving) -> None:
    asked: list[str] = []

    def form(handler: Handler) -> None:
        asked.append(handler.path)
        answer(200, b"token")(handler)

    web.answers["/form"] = form
    with Http().resource(Url.parse(web.url("/form")), Netrc(), RequestSpec("POST", b"a=b+c", (200,), secret=True))(
        {}
    ) as response:
        assert response.content == b"token"
    assert asked == ["/form?a=b+c"]
    web.answers["/form"] = answer(201, b"token")
    with (
        pytest.raises(FetchError, match=" answered 201 "),
        Http().resource(Url.parse(web.url("/form")), Netrc(), RequestSpec("POST", b"a=b", (200,), secret=True))({}),
    ):
        raise AssertionError


def test_only_https_is_asked_but_of_this_machine() -> None:
    get = Http(("other.test",)).resource(Url.parse("http://registry.test/x"), Netrc())
    assert "is not https, so nothing was sent there" in refused(get).message


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "file:///etc/passwd", "http:/x", "x", "http:///x"])
def test_what_is_no_url_of_the_web(url: str) -> None:
    with pytest.raises(FetchError, match="it is not an http or https URL with a host; nothing was sent there"):
        Url.parse(url)


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("http://registry.test/x?signed", "the server redirects to http://registry.test/x, which is not https"),
        ("ftp://127.0.0.1/x", "{host} redirects to ftp://127.0.0.1/x: it is not an http or https URL with a host"),
        ("https:///x", "{host} redirects to https:///x: it is not an http or https URL with a host"),
        ("", "{host} redirects without a target"),
    ],
)
def test_a_redirect_leads_nowhere_else_either(web: Misbehaving, location: str, why: str) -> None:
    web.answers["/x"] = answer(302, b"", {"Location": location})
    host = f"127.0.0.1:{web.server_address[1]}"
    assert refused(get(web, "/x")).message.startswith(f"{why.format(host=host)}; nothing was sent")
    assert len(web.asked) == 1


@pytest.mark.parametrize(
    ("url", "clear"),
    [
        ("https://registry.test/x", False),
        ("http://registry.test/x", True),
        ("http://127.0.0.1:5000/x", False),
        ("http://localhost/x", False),
        ("https://127.0.0.1/x", False),
    ],
)
def test_what_others_may_read(url: str, clear: bool) -> None:
    assert in_the_clear(Url.parse(url)) is clear


def repository(web: Misbehaving) -> Repository:
    return Repository(Http(), Place(f"127.0.0.1:{web.server_address[1]}", "group/name", True), ())


@pytest.mark.parametrize(
    "how",
    [
        answer(200, gzip.compress(MANIFEST), {"Content-Encoding": "gzip"}),
        answer(200, MANIFEST, {"Content-Type": "application/json+text/html"}),
        raw(b"HTTP/1.1 200 OK\r\n\r\n", MANIFEST),
        raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", b"1\r\n}\r\n0\r\n\r\n"),
    ],
)
def test_a_small_resource_is_read_whole(web: Misbehaving, how: Answer) -> None:
    web.put("manifests/1.0", how)
    content, headers = repository(web).read("manifests/1.0", "application/x", "it")
    assert content == (b"{}" if "Transfer-Encoding" in headers else MANIFEST)
    assert web.asked[0][1]["accept"] == "application/x"


def test_a_piece_of_negative_size(web: Misbehaving) -> None:
    """It ended in a traceback."""
    web.put("manifests/1.0", raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n{}\r\n0\r\n\r\n"))
    with pytest.raises(TransientError, match="cannot be reached or closed the connection"):
        repository(web).read("manifests/1.0", "*/*", "the manifest")


def test_a_part_is_no_small_resource(web: Misbehaving) -> None:
    web.put("manifests/1.0", answer(206, MANIFEST))
    with pytest.raises(FetchError) as caught:
        repository(web).read("manifests/1.0", "*/*", "the manifest")
    assert caught.value.message == f"127.0.0.1:{web.server_address[1]} answered 206 to a request for the manifest"


def test_a_small_resource_that_unpacks_to_much_is_refused(web: Misbehaving) -> None:
    web.put("manifests/1.0", answer(200, gzip.compress(bytes(LARGEST + 1)), {"Content-Encoding": "gzip"}))
    with pytest.raises(ImageError, match=r" sends too many bytes for the manifest, more than [0-9]+$"):
        repository(web).read("manifests/1.0", "*/*", "the manifest")
    web.put("manifests/1.0", answer(200, gzip.compress(bytes(LARGEST)), {"Content-Encoding": "gzip"}))
    assert len(repository(web).read("manifests/1.0", "*/*", "the manifest")[0]) == LARGEST


@pytest.mark.parametrize("kind", ["text/html", "Text/HTML; charset=utf-8"])
def test_a_page_is_told_in_any_spelling(web: Misbehaving, kind: str) -> None:
    web.put("manifests/1.0", answer(200, b"<html>", {"Content-Type": kind}))
    with pytest.raises(FetchError, match=r"sent an HTML page instead of manifests/1\.0$"):
        repository(web).read("manifests/1.0", "*/*", "the manifest")


def test_a_server_that_only_answers_400_is_told_as_it_is(web: Misbehaving) -> None:
    """It might have been one of TLS, and is none."""
    web.put("manifests/1.0", answer(400, b'{"message": "no"}'))
    with pytest.raises(FetchError, match=r" answered 400 Bad Request: no$"):
        repository(web).read("manifests/1.0", "*/*", "the manifest")


@pytest.mark.parametrize(("how", "attempts"), [(answer(503), 3), (raw(b"\0 no HTTP\r\n\r\n"), 2)])
def test_a_registry_that_has_answered_is_asked_more_often(web: Misbehaving, how: Answer, attempts: int) -> None:
    web.put("manifests/1.0", how)
    with pytest.raises(FetchError, match=rf"\({attempts} attempts\)$"):
        client(web).manifest()
    assert len(web.asked) == attempts


def test_without_a_tag_it_is_the_latest(web: Misbehaving) -> None:
    web.put("manifests/latest", answer(200, MANIFEST, {"Docker-Content-Digest": "md5:0"}))
    reference = parse(web.source().removesuffix(":1.0"))
    assert Registry(reference, Settings(), "amd64").manifest().digest == digest(MANIFEST)


def test_a_config_that_is_too_large_is_not_asked_for(web: Misbehaving) -> None:
    large = Manifest("", b"", Descriptor("", digest(CONFIG), LARGEST + 1), ())
    with pytest.raises(ImageError, match=f"has {LARGEST + 1} bytes, too many for a config"):
        client(web).config(large)
    assert web.asked == []


def mirrored(own: Misbehaving, *mirrors: Misbehaving) -> Registry:
    hosts = tuple(f"127.0.0.1:{mirror.server_address[1]}" for mirror in mirrors)
    settings = Settings(mirrors=((f"127.0.0.1:{own.server_address[1]}", hosts),))
    return Registry(parse(own.source()), settings, "amd64", RetryPolicy(attempts=1, first_attempts=1))


def test_a_mirror_that_fails_is_not_asked_again(start: Callable[[], Misbehaving]) -> None:
    own, bad, good = start(), start(), start()
    bad.put("manifests/1.0", answer(404))
    opened = mirrored(own, bad, good)
    opened.config(opened.manifest())
    assert bad.paths == ["manifests/1.0"]
    assert good.paths == ["manifests/1.0", f"blobs/{digest(CONFIG)}"]
    assert own.paths == []


@pytest.mark.parametrize(("status", "asked"), [(503, 1), (404, 2)])
def test_a_mirror_without_a_blob_may_have_another(start: Callable[[], Misbehaving], status: int, asked: int) -> None:
    """But not one that is in trouble."""
    own, mirror = start(), start()
    mirror.put(f"blobs/{digest(BLOB)}", answer(status))
    opened = mirrored(own, mirror)
    for _ in range(2):
        assert read(opened.blob(LAYER)) == BLOB
    assert (len(mirror.asked), len(own.asked)) == (asked, 2)


def test_when_all_fail_the_registrys_own_word_comes_first(start: Callable[[], Misbehaving]) -> None:
    own, mirror = start(), start()
    own.put("manifests/1.0", answer(403))
    mirror.put("manifests/1.0", answer(404))
    with pytest.raises(FetchError) as caught:
        mirrored(own, mirror).manifest()
    first, second = caught.value.message.split("\n")
    port = mirror.server_address[1]
    assert " answered 403 Forbidden" in first
    assert second == f"    mirror 127.0.0.1:{port}/group/name: 127.0.0.1:{port} answered 404 Not Found"
    assert own.paths == ["manifests/1.0"]  # its tags are asked for where it is the registry that has no such one


@pytest.mark.parametrize(
    ("listed", "hint"),
    [
        (answer(200, b'{"tags": ["1.1", "unlike", "1.0-cpu"]}'), "; it has: 1.1, 1.0-cpu"),
        (answer(200, b'{"tags": ["unlike"]}'), ""),
        (answer(200, b'{"tags": null}'), ""),
        (answer(200, b"no JSON"), ""),
        (answer(500), ""),
    ],
)
def test_a_tag_that_is_missing_is_told_with_others(web: Misbehaving, listed: Answer, hint: str) -> None:
    web.put("manifests/1.0", answer(404))
    web.put("tags/list", listed)
    with pytest.raises(FetchError) as caught:
        client(web).manifest()
    assert caught.value.hint.partition(" in group/name on 127.0.0.1:")[2].lstrip("0123456789") == hint


def test_the_outermost_index_is_the_images(web: Misbehaving) -> None:
    kind = "application/vnd.oci.image.index.v1+json"
    platform = {"architecture": "amd64", "os": "linux"}
    inner = json.dumps({"mediaType": kind, "manifests": [descriptor(MANIFEST, platform=platform)]}).encode()
    outer = json.dumps({"mediaType": kind, "manifests": [descriptor(inner, kind, platform=platform)]}).encode()
    web.put("manifests/1.0", answer(200, outer))
    for content in (inner, MANIFEST):
        web.put(f"manifests/{digest(content)}", answer(200, content))
    found = client(web).manifest()
    assert (found.digest, found.index_digest) == (digest(MANIFEST), digest(outer))
