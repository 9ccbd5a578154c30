"""A real container registry on the loopback address."""

from os import environ
from pathlib import Path

from support.command import run
from support.daemon import Daemon, free_ports, listens
from support.runtime import RUNTIME

CONFIGURATION = """
version: 0.1
log: {{accesslog: {{disabled: true}}}}
storage:
  filesystem: {{rootdirectory: {storage}}}
  delete: {{enabled: true}}
{cache}
http: {{addr: "127.0.0.1:{port}"}}
{options}
"""
USER, PASSWORD = "someone", "open sesame"
_HTPASSWD = f"{USER}:$2b$05$U36iawJihqR.eYtGKoPNR.f5MslBO.f5qKT0sKJYR1vkkcCwHsSti\n"  # bcrypt of the password


class Registry:
    """Start with `start`, end with `stop`; `address` is host and port.

    `options` are more lines of its configuration; `storage` is what another registry has, its own when not given. Where
    `cached` it remembers blobs, as in the configuration that Docker ships.
    """

    def __init__(
        self, directory: Path, options: str = "", storage: Path | None = None, *, cached: bool = False
    ) -> None:
        (self._port,) = free_ports(1)
        self.directory = directory
        self.storage = storage or directory / "storage"
        self._options = options
        self._cache = "  cache: {blobdescriptor: inmemory}" if cached else ""
        self.address = f"127.0.0.1:{self._port}"
        self._daemon: Daemon | None = None

    def start(self) -> None:
        """Returns when it answers."""
        self.directory.mkdir(parents=True)
        configuration = self.directory / "config.yaml"
        text = CONFIGURATION.format(storage=self.storage, port=self._port, options=self._options, cache=self._cache)
        configuration.write_text(text)
        self._daemon = Daemon(("docker-registry", "serve", configuration), self.directory / "registry.log")
        self._daemon.wait_until(lambda: listens(self._port))

    def stop(self) -> None:
        """End it; what was pushed stays in its directory."""
        if self._daemon is not None:
            self._daemon.stop()

    def push_layout(self, layout: Path, name: str) -> str:
        """Push an OCI layout, all of it, as `name` (`repository:tag`) and return its `docker://` reference."""
        reference = f"docker://{self.address}/{name}"
        policy = ("--insecure-policy", "copy", "--all", "--dest-tls-verify=false", "--quiet")
        run(("skopeo", *policy, f"oci:{layout}", reference)).ok()
        return reference

    def push_sif(self, sif: Path, name: str) -> str:
        """Push a SIF as `name` (`repository:tag`) and return its `oras://` reference."""
        reference = f"oras://{self.address}/{name}"
        env = {
            "PATH": environ["PATH"],
            "HOME": str(self.directory),
            f"{RUNTIME.prefix}_CACHEDIR": str(self.directory / "cache"),
        }
        run((RUNTIME.path, *RUNTIME.push, sif, reference), env=env).ok()
        return reference


def with_password(directory: Path, storage: Path) -> Registry:
    """A registry that gives what `storage` has to USER with PASSWORD only (basic authentication)."""
    file = directory.with_suffix(".htpasswd")
    file.write_text(_HTPASSWD)
    return Registry(directory, f"auth: {{htpasswd: {{realm: here, path: {file}}}}}", storage)


def with_tokens(directory: Path, storage: Path, realm: str, certificate: Path) -> Registry:
    """A registry that gives what `storage` has to bearers of a token from `realm`, signed by `certificate`'s key."""
    token = f"realm: {realm}, service: tests, issuer: tests, rootcertbundle: {certificate}"
    return Registry(directory, f"auth: {{token: {{{token}}}}}", storage)


def mirror_of(directory: Path, address: str) -> Registry:
    """A registry that passes on, and keeps, what the registry at `address` has."""
    return Registry(directory, f'proxy: {{remoteurl: "http://{address}"}}')
