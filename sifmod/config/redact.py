"""Redact sources for display: remove passwords and queries, which may be signatures."""

import os
import re
from collections.abc import Mapping

from sifmod.secret import NO_QUERY, OF_SSH, PORT

# Only the first two are compiled here: most runs need no others, and compiling them takes milliseconds.
_SCHEME = re.compile(r"[^\w./~]*([A-Za-z][A-Za-z0-9+.-]*):")  # also after a blank, which is rejected later
_FORGOTTEN = re.compile(r"(?i)[^\w./~]*(https?|docker|oras|library|file|oci)//")
LOCAL = ("file", "oci", "oci-archive", "docker-archive")
REGISTRIES = ("docker", "oras", "library")
# an @ in a registry reference that does not end credentials: before a digest, or after a repository
_NO_CREDENTIALS = r"(@sha[0-9]+(:[^/@]*)?|(?<=//)[^/:@]+(:[0-9]+(?=/))?(/[^:@]*)?@[^/:@]*)$"
# AUTHORIZATION, but not AUTHOR; SIG is Azure's
_SUSPICIOUS = (
    "(?i)TOKEN|PASS|(?<=_)PWD|SECRET|KEY|CRED(S|ENTIAL)|AUTH(?!ORS?(?![A-Z]))|LOGIN|SIGNATURE"
    "|(?<![A-Z])(SIG|TOK|PAT|JWT|BEARER)(?![A-Z])"
)
# tokens of GitHub, Hugging Face, AWS, GitLab, Docker, NVIDIA, PyPI, Slack and OpenAI; JSON web tokens
_KNOWN_BEGINNINGS = (
    r"(?<![A-Za-z0-9])((gh[opsur]|hf)_[A-Za-z0-9]{16}|AKIA[A-Z0-9]{16}|(github_pat_|glpat-|dckr_pat_|nvapi-|pypi-AgE"
    r"|xox[abp]-|sk-(proj|ant)-|eyJ[A-Za-z0-9_-]{8,999}\.eyJ)[A-Za-z0-9_-]{10})"
)
_SECRET = 6  # characters of the shortest secret
_HEAD = r"[^\w./~]*[A-Za-z][A-Za-z0-9+.-]*:?/{0,2}"  # a path has only one slash
_HOST = r"(\[[^\]/]*\]|[^/?#:@]*)(:[0-9]*)?([/?#]|$)"

# of any URL in a text the part before the host; with an ssh key a name alone is not a login. For the web's schemes
# parsers take any number of slashes, either way round (https://url.spec.whatwg.org/#special-authority-slashes-state)
# The scheme's length is limited: otherwise a long text of `a.a.a.` takes minutes.
_START = r"\b((?:[a-z][a-z0-9.-]{0,40}\+)?(?:https?|wss?|ftp):[/\\]*|[a-z][a-z0-9+.-]{0,40}://)"
_LOGIN = rf"(?i){_START}([^\s/?#]*@|[^\s/?#@:]*:(?![0-9]*(?:[/?#\s]|$))\S*@)"
_WITH_BLANKS = rf"(?i){_START}[^\s/?#@:]*:(?!{PORT})[^\s/?#@][^/?#@\n]{{0,200}}@(?=\S)"  # a long text: see above


def has_login(text: str) -> bool:
    """Whether a URL in the text has a user or password before its host, except the user that ssh needs.

    A password may have blanks.
    """
    words = (_until_login(word)[0] for word in text.split())
    return re.search(_WITH_BLANKS, text) is not None or any(
        not re.fullmatch(OF_SSH, found[0]) for word in words for found in re.finditer(_LOGIN, word)
    )


def without_logins(text: str) -> str:
    """The text with the logins removed from its URLs."""
    return re.sub(r"\S+", _without, re.sub(_WITH_BLANKS, r"\1", text))


def _without(word: re.Match[str]) -> str:
    start, rest = _until_login(word[0])
    return re.sub(_LOGIN, lambda found: found[0] if re.fullmatch(OF_SSH, found[0]) else found[1], start) + rest


def _until_login(word: str) -> tuple[str, str]:
    """Split a word after its last @, so that the part without logins is never searched again."""
    end = word.rfind("@") + 1
    return word[:end], word[end:]


def shown(source: str) -> str:
    """`source` without logins, and a URL without query and fragment, for messages. Paths and names stay unchanged."""
    scheme = _SCHEME.match(source)
    if scheme is None:
        return _of_url(source) if _FORGOTTEN.match(source) else source
    kind = scheme[1].lower()
    if kind in LOCAL:
        return without_logins(source)
    if kind not in REGISTRIES:
        return _of_url(source)
    kept = re.search(_NO_CREDENTIALS, source)
    end = kept.start() if kept else len(source)
    return re.sub(r"^([^:]*:(?://)?).*@", r"\1", source[:end]) + source[end:]


def without_directory(source: str) -> str:
    """`source`; the directory of a local file is left out, because it differs in another checkout or a bundle."""
    return re.sub(rf"^((?:(?:{'|'.join(LOCAL)}):)?)/.*/(?=[^/])", r"\1", source)


def is_secret(name: str) -> bool:
    """Whether a variable or a parameter of this name may hold a secret."""
    return re.search(_SUSPICIOUS, name) is not None


def has_token(text: str) -> bool:
    """Whether the text has a token that is known by its beginning."""
    return re.search(_KNOWN_BEGINNINGS, text) is not None


def without_values(text: str, environ: Mapping[str, str]) -> str:
    """The text with `...` instead of known tokens, and of the values of variables with a secret's name.

    Values of fewer than 6 characters, which may be words of the text, and existing paths (SSH_AUTH_SOCK) stay.
    """
    text = re.sub(rf"{_KNOWN_BEGINNINGS}[A-Za-z0-9_.-]*", "...", text)
    values = {value for name, value in environ.items() if len(value) >= _SECRET and value in text and is_secret(name)}
    for value in sorted(values, key=len, reverse=True):
        if not (value.startswith("/") and os.path.lexists(value)):
            text = text.replace(value, "...")
    return text


def secret_parameter(text: str) -> str:
    """The first name of a parameter with a value in the text's URLs that is a secret's; "" for none.

    It may be in the path, the query or the fragment.
    """
    from urllib.parse import unquote  # not above: `list` and TAB import this module

    for word in text.split() if "://" in text else ():
        for name in re.findall(r"[?&;#]([^=?&;#]*)=[^?&;#]", word[word.find("://") :] if "://" in word else ""):
            if is_secret(unquote(name)):
                return unquote(name)
    return ""


def without_query(source: str) -> str:
    """`source` for a receipt, where others read it: with NO_QUERY instead of a URL's query, which no fetch accepts."""
    bare = shown(source)
    return f"{bare}{NO_QUERY}" if bare != source and source.lower().startswith(("https:", "http:")) else source


def _of_url(source: str) -> str:
    head = re.match(_HEAD, source)
    start = source[: head.end() if head else 0]
    rest = re.sub(r"^[^/?#]*@", "", source[len(start) :])
    if "@" in rest and not re.match(_HOST, rest):  # a password with a `/`, `?` or `#` in it
        rest = rest.rpartition("@")[2]
    return start + re.split("[?#]", rest, maxsplit=1)[0]
