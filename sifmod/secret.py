"""Secrets in what users type and write: logins, queries and fragments of URLs, valid or not, for texts that quote them.

config/redact.py removes the secrets of sources, whose form sifmod knows.
"""

import re
from collections.abc import Iterable, Mapping

NO_QUERY = "?..."
OF_SSH = r"(?i)(git\+)?ssh://[^:@/]+@"  # a name alone, which ssh needs, is no login
PORT = r"[0-9]+([:\s]|[.,;)\]}'\"]+\s)"  # of a URL inside a sentence: no beginning of a password with blanks

# Any number of slashes either way round, as parsers of the web's URLs take them. The scheme's length is limited:
# otherwise a long text of `a.a.a.` takes minutes.
_START = r"(?:[a-z][a-z0-9+.-]{0,40}:[/\\]{2,}|(?:https?|wss?|ftp|docker|oras|library):[/\\]*|(?<![^\s='\".-])[/\\]{2})"
_BARE = r"(?!(?:oci|oci-archive|docker-archive|file|build):)[^\s/:@='\"]+:(?![0-9]*/)\S{1,200}@"
_LOGIN = rf"(?is){_START}([^/\\?#]*@|[^/\\?#@:]*:(?![0-9]*(?:[/?#\s]|$)).*@)|(?<![^\s='\"])({_BARE})"
_WITH_BLANKS = rf"(?i)({_START})[^\s/?#@:]*:(?!{PORT})[^\s/?#@][^/?#@\n]{{0,200}}@(?=\S)"
_QUERY = rf"(?is){_START}[^?#]*(\?(?!QUERY\b)[^#]*)?(#(?!(?:egg|subdirectory|md5|sha[0-9]+)=).*)?"
_NAME = r"(?i)(docker|oras|library):[/\\]*[^:]*@"  # docker://ubuntu@24.04 is a mistake, not a login
_END = "'\"`.,;:)]}"  # what a message has behind a word
_SHORTEST = 8  # characters of a secret that is looked for in each message; shorter ones are words, too
_sent: set[str] = set()


def hide_sent(secrets: Iterable[str]) -> None:
    """From now on leave these secrets out of messages: any field of a server's later answer may repeat them."""
    _sent.update(one.lower() for one in secrets if len(one) >= _SHORTEST)


def without_sent(text: str) -> str:
    """The text without what `hide_sent` named."""
    if any(one in text.lower() for one in _sent):
        pattern = "|".join(map(re.escape, sorted(_sent, key=len, reverse=True)))
        return re.sub(pattern, "***", text, flags=re.IGNORECASE)
    return text


def secret_parts(words: Iterable[str]) -> Mapping[str, str]:
    """Each login, query and fragment in words, with the text to show instead; `me:password@host` has a login too."""
    found: dict[str, str] = {}
    for word in words:
        if not {"@", "?", "#"}.intersection(word):  # almost all; nothing is compiled for them
            continue
        end = max((at.end() for at in re.finditer("@(?!sha[0-9]+:)", word)), default=0)
        for login in re.finditer(_LOGIN, word[:end]):
            is_name = re.fullmatch(_NAME, login[0]) and "/" not in word[login.end() :]
            if not (is_name or re.fullmatch(OF_SSH, login[0])):
                whole = login[1] or login[2]
                password = whole.partition(":")[2]
                found |= {whole: "", f":{password}": ":...@", password: "...@"}
        for query, fragment in re.findall(_QUERY, word):
            found |= {query: NO_QUERY, fragment: "#..."}
    return {text: instead for text, instead in found.items() if len(text) > 1}


def without_secrets(text: str) -> str:
    """A message, which may quote a file or a server, without the secrets in its words and URLs, and those sent."""
    text = without_sent(text)
    if not {"@", "?", "#"}.intersection(text):
        return text
    return re.sub(r"'[^'\n]*://[^'\n]*'|\S+", _without, re.sub(_WITH_BLANKS, r"\1", text))


def _without(word: re.Match[str]) -> str:
    text = word[0]
    for secret, instead in secret_parts((text.rstrip(_END),)).items():
        text = text.replace(secret, instead)
    return text


def cut(text: str, most: int) -> str:
    """The first `most` characters of a text for a message, without its secrets: one that is cut would not be found."""
    return without_secrets(text)[:most]
