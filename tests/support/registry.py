"""A real container registry on the loopback address."""

from os import environ
from pathlib import Path

from support.command import run
from support.daemon import Daemon, free_ports, listens

CONFIGURATION = """
version: 0.1
log: {{accesslog: {{disabled: true}}}}
storage:
  filesystem: {{rootdirectory: {directory}/storage}}
  delete: {{enabled: true}}
http: {{addr: "127.0.0.1:{port}"}}
"""


class Registry:
    """Start with `start`, end with `stop`; `address` is host and port."""

    def __init__(self, directory: Path) -> None:
        (self._port,) = free_ports(1)
        self.directory = directory
        self.address = f"127.0.0.1:{self._port}"
        self._daemon: Daemon | None = None

    def start(self) -> None:
        """Returns when it answers."""
        self.directory.mkdir(parents=True)
        configuration = self.directory / "config.yaml"
        configuration.write_text(CONFIGURATION.format(directory=self.directory, port=self._port))
        self._daemon = Daemon(("docker-registry", "serve", configuration), self.directory / "registry.log")
        self._daemon.wait_until(lambda: listens(self._port))

    def stop(self) -> None:
        """End it; what was pushed stays in its directory."""
        if self._daemon is not None:
            self._daemon.stop()

    def push_layout(self, layout: Path, name: str) -> str:
        """Push an OCI layout of one manifest as `name` (`repository:tag`) and return its `docker://` reference."""
        reference = f"docker://{self.address}/{name}"
        policy = ("--insecure-policy", "copy", "--dest-tls-verify=false", "--quiet")
        run(("skopeo", *policy, f"oci:{layout}", reference)).ok()
        return reference

    def push_sif(self, sif: Path, name: str) -> str:
        """Push a SIF as `name` (`repository:tag`) and return its `oras://` reference."""
        reference = f"oras://{self.address}/{name}"
        env = {
            "PATH": environ["PATH"],
            "HOME": str(self.directory),
            "APPTAINER_CACHEDIR": str(self.directory / "cache"),
        }
        run(("apptainer", "push", "--no-https", sif, reference), env=env).ok()
        return reference
