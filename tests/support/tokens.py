"""A server that gives tokens, as Docker's registry wants them: real JSON web tokens, signed with a real key."""

import base64
import json
import subprocess
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from support.command import run
from support.web import Answer, Handler, Web, answer

PATH = "/token"


class TokenServer:
    """A Web that signs; `certificate` is what the registry has to trust.

    `lifetimes` are those of the next tokens, in seconds (an hour after the last); a login other than `login`
    (`user:password`, "" for anybody) is refused. Of what is asked for a token allows what is in `grants`; where that is
    less, the answer is the status `denial` instead, 0 for a token all the same, as Docker Hub gives one. `asked` are
    the Authorization headers and queries so far.
    """

    def __init__(self, directory: Path, login: str = "") -> None:
        self.certificate = directory / "token.pem"
        self._key = directory / "token.key"
        files = ("-keyout", self._key, "-out", self.certificate, "-subj", "/CN=tests", "-days", "2")
        run(("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files)).ok()
        self.lifetimes: list[int] = []
        self.login = login
        self.grants: tuple[str, ...] = ("pull", "push")
        self.denial = 0
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.web = Web()
        self.web.answers[PATH] = self._give
        self.realm = self.web.url(PATH, "127.0.0.1")

    def start(self) -> None:
        self.web.start()

    def stop(self) -> None:
        self.web.stop()

    def _give(self, handler: Handler) -> None:
        query = parse_qs(urlsplit(handler.path).query)
        header = handler.headers.get("Authorization", "")
        self.asked.append((header, query))
        self._answer(header, query["scope"])(handler)

    def _answer(self, header: str, scopes: list[str]) -> Answer:
        wanted = f"Basic {base64.b64encode(self.login.encode()).decode()}"
        if self.login and header != wanted:
            return answer(401, b'{"details": "incorrect username or password"}')
        asked = {action for scope in scopes for action in scope.rpartition(":")[2].split(",")}
        if self.denial and not asked <= {*self.grants}:
            return answer(self.denial, b'{"details": "requested access to the resource is denied"}')
        lifetime = self.lifetimes.pop(0) if self.lifetimes else 3600
        return answer(200, json.dumps({"token": self._token(scopes, lifetime), "expires_in": 60}).encode())

    def _token(self, scopes: list[str], lifetime: int) -> str:
        der = "".join(self.certificate.read_text().splitlines()[1:-1])
        access = []
        for scope in scopes:
            kind, name, actions = scope.split(":")
            allowed = [one for one in actions.split(",") if one in self.grants]
            access.append({"type": kind, "name": name, "actions": allowed})
        now = int(time.time())
        claims = {
            "iss": "tests",
            "sub": "",
            "aud": "tests",
            "nbf": now - 10_000,
            "iat": now - 10_000,
            "exp": now + lifetime,
            "jti": str(time.monotonic_ns()),
            "access": access,
        }
        parts = {"typ": "JWT", "alg": "RS256", "x5c": [der]}, claims
        text = ".".join(_url_safe(json.dumps(part).encode()) for part in parts)
        sign = ("openssl", "dgst", "-sha256", "-sign", str(self._key))
        signature = subprocess.run(sign, input=text.encode(), capture_output=True, check=True).stdout
        return f"{text}.{_url_safe(signature)}"


def _url_safe(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
