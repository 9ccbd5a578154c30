"""Credentials: read from the user's existing files, when a server requires them.

They are never stored, logged or shown.

The files are those of docker, podman and skopeo, Apptainer and SingularityCE (one format, docker's `config.json`),
their credential helpers included, and `~/.netrc` for files from web servers.
"""

import base64
import binascii
import json
import os
import re
import selectors
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from netrc import NetrcParseError
from pathlib import Path
from typing import IO, NamedTuple

import requests

from sifmod.config.kinds import RUNTIMES
from sifmod.config.redact import is_secret, without_logins, without_values
from sifmod.errors import FetchError, ImageError
from sifmod.image.oci.content import LARGEST, Content, plain, read_content
from sifmod.image.registry.http import Authority, refusal
from sifmod.image.registry.mirrors import DOCKER_HUB, Place, hub_or
from sifmod.image.registry.url import Url

_HUB_KEY = "https://index.docker.io/v1/"  # under which docker keeps the login for its own registry
_VARIABLES = ("APPTAINER_AUTH_FILE", "SINGULARITY_AUTHFILE", "SINGULARITY_AUTH_FILE", "REGISTRY_AUTH_FILE")
_HELPER = re.compile("[A-Za-z0-9._-]+")
_PATIENCE = 60.0  # seconds that a helper may take
_LARGEST = 1 << 20  # bytes of each output of a helper, which may be anything; a login has a few hundred
_PART = 1 << 16
_IDENTITY = "<token>"  # the user name under which a helper keeps an identity token
_ADVICE = {
    401: "give your credentials for this host in ~/.netrc",
    403: "ask the owner for access; credentials for this host are read from ~/.netrc",
    404: "check whether the file has moved, and correct the source in the easyconfig or with --source",
    407: "the proxy requires credentials: see the variable https_proxy",
    410: "the file was withdrawn: correct the source in the easyconfig or with --source",
    429: "the server limits the request rate: wait, or use a copy of the file with --source PATH",
}


@dataclass(frozen=True)
class Credentials:
    """A login: a user and a password, or a token instead. `origin` is its file, variable or credential helper."""

    origin: str
    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)  # OAuth2 refresh token
    registry_token: str = field(default="", repr=False)  # sent as it is

    @property
    def can_be_sent(self) -> bool:
        """Whether a request can have the login: bytes of a variable, and JSON's escapes, may be no characters."""
        try:
            f"{self.username}{self.password}{self.identity_token}".encode()
        except UnicodeEncodeError:
            return False
        return self.registry_token.isascii() and (not self.registry_token or self.registry_token.isprintable())

    @property
    def basic(self) -> str:
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


class Logins:
    """The logins of this user. `notes` lists unusable ones, for the error when a server refuses."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.notes: list[str] = []

    def find(self, place: Place) -> Credentials | None:
        """The login for a repository of a registry, or None.

        Variables take precedence over files; they name no host, and are only used for a host that the user named. In
        the first file with a login a helper precedes the most specific entry; a helper that fails is skipped. A login
        that cannot be sent is none.
        """
        found = self._found(place)
        if found is None or found.can_be_sent:
            return found
        self.notes.append(f"the login of {found.origin} is not UTF-8, or its token is not printable ASCII")
        return None

    def _found(self, place: Place) -> Credentials | None:
        for prefix in ("APPTAINER", "SINGULARITY") if place.named else ():
            username, password = (self._environ.get(f"{prefix}_DOCKER_{what}", "") for what in ("USERNAME", "PASSWORD"))
            if username and password:
                return Credentials(f"{prefix}_DOCKER_USERNAME", username, password)
        for path in auth_files(self._environ):
            if (content := self._read(path)) and (found := self._from_file(path, content, str(place))):
                return found
        return None

    def _read(self, path: Path) -> Content | None:
        try:
            with path.open("rb") as file:
                return read_content(file.read(LARGEST + 1), str(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ImageError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not a JSON object, or too large"
            self.notes.append(f"{path} could not be read: {reason}")
            return None

    def _from_file(self, path: Path, content: Content, name: str) -> Credentials | None:
        host = name.partition("/")[0]
        try:
            helpers = {_plain_key(key): helper for key, helper in content.pairs("credHelpers")}
            for helper in dict.fromkeys((helpers.get(host, ""), content.text("credsStore"))):
                if helper and (found := self._ask(helper, host)):
                    return found
            auths = content.child("auths")
            entries = {_plain_key(key): auths.child(key) for key in auths}
            while name:
                if name in entries and (found := _entry(entries[name], f"{path}")):
                    return found
                name = name.rpartition("/")[0]
        except ImageError:
            self.notes.append(f"{path} is not in the format of `docker login`")
        return None

    def _ask(self, helper: str, host: str) -> Credentials | None:
        program = f"docker-credential-{helper}"
        key = _HUB_KEY if host == DOCKER_HUB else host
        if not _HELPER.fullmatch(helper):
            self.notes.append(f"the credential helper {helper!r} is not a program's name")
            return None
        try:
            username, secret = ask_helper(program, key, self._environ) or ("", "")
        except HelperError as why:
            self.notes.append(f"{program} {why}")
            return None
        if username == _IDENTITY:
            return Credentials(program, identity_token=secret)
        return Credentials(program, username, secret) if username or secret else None


_NOBODYS = "https://nobodys.invalid/"  # only the entry `default` is for it


class Netrc(Authority):
    """The authority for files on web servers: each host gets its entry in `~/.netrc`, over https only.

    The entry `default` is only for the host and port that are asked first, not for those to which they redirect.
    """

    def __init__(self) -> None:
        self._first = ""
        self._note = ""

    def authorization(self, url: Url) -> str:
        """The Authorization header with the login for this host; "" without one."""
        self._first = self._first or url.place
        login = self._login(str(url)) if url.scheme == "https" else None
        if not login or (url.place != self._first and login == self._login(_NOBODYS)):
            return ""
        return Credentials("~/.netrc", *login).basic

    def _login(self, url: str) -> tuple[str, str] | None:
        try:
            return requests.utils.get_netrc_auth(url, raise_errors=True)
        except NetrcParseError as error:  # its message may have the password
            why = f"line {error.lineno} is invalid"
        except UnicodeDecodeError:
            why = "it is not UTF-8"
        except OSError as error:
            why = error.strerror or "it cannot be read"
        self._note = f"{plain(os.environ.get('NETRC', '~/.netrc'))} was not used: {why}"
        return None

    def refused(self, response: requests.Response) -> FetchError:
        note = self._note if response.status_code in (401, 403) else ""
        return refusal(response, "; ".join(filter(None, (note, _ADVICE.get(response.status_code, "")))))


def auth_files(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The files that may have logins, most specific first: those in variables, then those of each tool."""
    home = Path(environ.get("HOME") or "/nonexistent")
    named = [environ[name] for name in _VARIABLES if environ.get(name)]
    runtimes = (
        Path(environ.get(f"{kind.upper()}_CONFIGDIR") or home / f".{kind}") / "docker-config.json" for kind in RUNTIMES
    )
    docker = Path(environ.get("DOCKER_CONFIG") or home / ".docker") / "config.json"
    run = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    podman = (Path(run), Path(environ.get("XDG_CONFIG_HOME") or home / ".config"))
    others = (directory / "containers" / "auth.json" for directory in podman)
    return tuple(dict.fromkeys((*map(Path, named), *runtimes, docker, *others)))


def _plain_key(key: str) -> str:
    """A key in an auth file without scheme and API version: `https://index.docker.io/v1/` is docker.io."""
    name = re.sub(r"^https?://", "", key)
    name = re.sub(r"/(v[12]/?)?$", "", name)
    host, slash, rest = name.partition("/")
    return f"{hub_or(host)}{slash}{rest}"


def _entry(entry: Content, origin: str) -> Credentials | None:
    username, password = entry.text("username"), entry.text("password")
    if auth := entry.text("auth"):
        try:
            username, _, password = base64.b64decode(auth, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            raise entry.wrong("auth", "base64") from None
    token, registry = entry.text("identitytoken"), entry.text("registrytoken")
    if not (token or registry or username):
        return None
    return Credentials(origin, username, password.rstrip("\0"), token, registry)


class HelperError(Exception):
    """A helper cannot be used; the text is the reason, which follows the helper's name in a message."""


class _Answer(NamedTuple):
    code: int
    output: bytes
    errors: bytes


def ask_helper(program: str, key: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The user name and the secret that a helper keeps under `key`; None if it keeps none. Raises HelperError.

    The protocol: https://github.com/docker/docker-credential-helpers.
    """
    try:
        answer = _run_helper(program, key, environ)
    except OSError as error:
        raise HelperError(f"could not be run: {error.strerror}") from error
    if answer.code:
        if b"credentials not found" in answer.output + answer.errors:
            return None
        said = plain(without_logins(without_values(_said(answer), environ)))
        raise HelperError(f"failed{f': {said}' if said else ''}")
    try:
        found = json.loads(answer.output)
        return str(found["Username"]), str(found["Secret"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise HelperError("gave an invalid login") from error


def _said(answer: _Answer) -> str:
    """The errors of a helper, without the words of its output and values of secret-like names (`set -x`)."""
    said = answer.errors[:_PART].decode("utf-8", "replace")
    for word in re.findall(r"[^\s\"':,{}]{6,}", answer.output[: _PART // 16].decode("utf-8", "replace")):
        said = said.replace(word, "...")
    return re.sub(r"(\w{1,60})([=:] *)\S+", lambda one: f"{one[1]}{one[2]}..." if is_secret(one[1]) else one[0], said)


def _run_helper(program: str, key: str, environ: Mapping[str, str]) -> _Answer:
    pipe, end = subprocess.PIPE, time.monotonic() + _PATIENCE
    with subprocess.Popen((program, "get"), stdin=pipe, stdout=pipe, stderr=pipe, env=dict(environ)) as process:
        try:
            if process.stdin is None or process.stdout is None or process.stderr is None:
                raise HelperError("could not be run")
            with suppress(BrokenPipeError):  # it need not read the key
                process.stdin.write(key.encode())
                process.stdin.close()
            output, errors = _read_outputs((process.stdout, process.stderr), end)
            return _Answer(process.wait(max(0.0, end - time.monotonic())), output, errors)
        except subprocess.TimeoutExpired as error:
            raise HelperError("gave no answer") from error
        finally:
            process.kill()  # no effect after it has ended


def _read_outputs(streams: tuple[IO[bytes], IO[bytes]], end: float) -> tuple[bytes, bytes]:
    found = {stream.fileno(): bytearray() for stream in streams}
    with selectors.DefaultSelector() as waiting:
        for stream in streams:
            waiting.register(stream, selectors.EVENT_READ)
        while waiting.get_map():
            left = end - time.monotonic()
            if left <= 0 or not (ready := waiting.select(left)):
                raise HelperError("gave no answer")
            for key, _ in ready:
                if not (data := os.read(key.fd, _PART)):
                    waiting.unregister(key.fileobj)
                found[key.fd] += data
                if len(found[key.fd]) > _LARGEST:
                    raise HelperError(f"wrote more than {_LARGEST} bytes, and was stopped")
    output, errors = found.values()
    return bytes(output), bytes(errors)
