"""The places to fetch a reference from: the site's mirrors first, the registry that the reference names last."""

import re
from dataclasses import dataclass

from sifmod.image.reference import Reference

DOCKER_HUB = "docker.io"

Mirrors = tuple[tuple[str, tuple[str, ...]], ...]
"""A prefix of a reference (`docker.io`, `quay.io/group`), and its replacements, in order."""

TokenServers = tuple[tuple[str, tuple[str, ...]], ...]
"""A registry, `host[:port]`, and the hosts of its token servers."""

_HUB = (DOCKER_HUB, "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com")
_HUB_SERVER = "registry-1.docker.io"
_KNOWN_TOKEN_SERVERS: TokenServers = ((DOCKER_HUB, ("auth.docker.io",)), ("registry.gitlab.com", ("gitlab.com",)))


@dataclass(frozen=True)
class Place:
    """`repository` in the registry `host`, which is docker.io for all names of Docker Hub.

    `named`: the user named this registry; the site names mirrors, receipts the registry of an earlier fetch.
    """

    host: str
    repository: str
    named: bool = False

    @property
    def server(self) -> str:
        return _HUB_SERVER if self.host == DOCKER_HUB else self.host

    def __str__(self) -> str:
        """`host/repository`, as in a reference."""
        return f"{self.host}/{self.repository}"


def places(reference: Reference, mirrors: Mirrors) -> tuple[Place, ...]:
    """The places of `reference` (docker, oras): every mirror whose prefix covers it, in order, then its own registry.

    Docker Hub's official images get their `library/`.
    """
    origin = own_place(reference)
    found = [
        _place(replacement, str(origin)[len(start) :])
        for prefix, replacements in mirrors
        if f"{origin}/".startswith(f"{(start := _plain_prefix(prefix))}/")
        for replacement in replacements
    ]
    same = (origin.host, origin.repository)
    return (*dict.fromkeys(place for place in found if (place.host, place.repository) != same), origin)


def mirrors_of(reference: Reference, mirrors: Mirrors) -> tuple[Place, ...]:
    """The mirrors for `reference`; none unless it is in a registry."""
    return places(reference, mirrors)[:-1] if reference.kind.location == "repository" else ()


def own_place(reference: Reference) -> Place:
    """Registry and repository that `reference` (docker, oras) names: one place for all of its spellings."""
    host = hub_or(reference.host.lower())
    rest = reference.location.removeprefix(f"{reference.host}/")
    return Place(host, f"library/{rest}" if host == DOCKER_HUB and "/" not in rest else rest, named=True)


def token_servers(place: Place, named: TokenServers) -> tuple[str, ...]:
    """The hosts besides the registry's own that may get a login for `place`: known ones, and those in `named`."""
    found = (hosts for registry, hosts in (*_KNOWN_TOKEN_SERVERS, *named) if covers((hub_or(registry),), place.host))
    return tuple(host for hosts in found for host in hosts)


def covers(hosts: tuple[str, ...], host: str) -> bool:
    """Whether `host` is among `hosts`; one of these without a port matches all ports."""
    name = re.sub(":[0-9]+$", "", host)
    return not {host, name, name.strip("[]")}.isdisjoint(hosts)


def source_of(reference: Reference) -> str:
    """The source of `reference`, normalized, without tag and digest: `docker://docker.io/library/python`.

    A source outside of registries is not identified by its path or URL, but only by its kind, such as `oci:`.
    """
    has_place = reference.kind.location == "repository"
    return f"{reference.kind.name}://{own_place(reference)}" if has_place else f"{reference.kind.name}:"


def hub_or(host: str) -> str:
    """docker.io if `host` is one of Docker Hub's names, else `host`."""
    return DOCKER_HUB if host in _HUB else host


def _plain_prefix(prefix: str) -> str:
    host, slash, rest = prefix.rstrip("/").partition("/")
    return f"{hub_or(host)}{slash}{rest}"


def _place(replacement: str, rest: str) -> Place:
    host, _, repository = f"{replacement.rstrip('/')}{rest}".partition("/")
    return Place(hub_or(host), repository)
