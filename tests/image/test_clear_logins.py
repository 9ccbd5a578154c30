"""A login of ~/.netrc for a host that a lock, a requirement or an option names over http."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sifmod.errors import OptionError
from sifmod.image.packages.request import name_of, read_lock, words_of
from sifmod.image.packages.requirements import parse_requests
from support.config import write

LOCK = """\
lock-version = "1.0"
[[packages]]
name = "a"
version = "1"
wheels = [{{ url = "{url}", hashes = {{ sha256 = "aa" }} }}]
"""


def a_lock(place: Path, url: str) -> None:
    read_lock(write(place / "pylock.toml", LOCK.format(url=url)))


def a_repository_of_a_lock(place: Path, url: str) -> None:
    text = f'[[packages]]\nname = "a"\nvcs = {{ type = "git", url = "{url}", commit-id = "aa" }}\n'
    read_lock(write(place / "pylock.toml", text))


def an_index_of_a_file(place: Path, url: str) -> None:
    parse_requests(files=(write(place / "r.txt", f"--index-url {url}\na==1\n"),))


def links_of_a_file(place: Path, url: str) -> None:
    parse_requests(files=(write(place / "r.txt", f"--find-links {url}\na==1\n"),))


def a_line_of_a_file(place: Path, url: str) -> None:
    parse_requests(files=(write(place / "r.txt", f"a @ {url}\n"),))


def a_requirement(place: Path, url: str) -> None:  # noqa: ARG001
    name_of(f"a @ {url}")


def a_repository(place: Path, url: str) -> None:  # noqa: ARG001
    parse_requests((f"a @ git+{url}",))


def an_index(place: Path, url: str) -> None:  # noqa: ARG001
    words_of(index_url=url)


def another_index(place: Path, url: str) -> None:  # noqa: ARG001
    words_of(extra_index_url=(url,))


def links(place: Path, url: str) -> None:  # noqa: ARG001
    words_of(find_links=(url,))


@pytest.mark.parametrize(
    "use",
    [
        *(a_lock, a_repository_of_a_lock, an_index_of_a_file, links_of_a_file, a_line_of_a_file),
        *(a_requirement, a_repository, an_index, another_index, links),
    ],
)
def test_no_login_of_netrc_goes_over_http(
    use: Callable[[Path, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uv and git sent it in clear text, to whom a colleague's file named."""
    place, named = tmp_path / "files", ("http://index.example/a.whl", "HTTP://Index.Example:8080/a.whl")
    monkeypatch.setenv("NETRC", str(write(tmp_path / "logins", "machine index.example login me password s3cret\n")))
    for url in named:
        with pytest.raises(
            OptionError, match=r"index\.example would get your login of ~/\.netrc in clear text"
        ) as error:
            use(place, url)
        assert "s3cret" not in str(error.value)
    for url in ("https://index.example/a.whl", "http://other.example/a.whl", "http://127.0.0.1/a.whl"):
        use(place, url)
    monkeypatch.setenv("NETRC", str(write(tmp_path / "logins", "default login me password s3cret\n")))
    with pytest.raises(OptionError, match="in clear text"):
        use(place, "http://other.example/a.whl")
    monkeypatch.setenv("NETRC", "/dev/null")
    use(place, named[0])
