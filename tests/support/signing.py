"""People with OpenPGP keys: made by real gpg, signing SIFs with real apptainer."""

import os
import shutil
import subprocess
import tempfile
import weakref
from pathlib import Path

from support.command import Result, run
from support.runtime import RUNTIME

THEN = "20250101T000000"  # when keys are made, so that they can have expired since


def _end(home: Path) -> None:
    subprocess.run(("gpgconf", "--homedir", home, "--kill", "all"), check=False)
    shutil.rmtree(home, ignore_errors=True)


class Signer:
    """One person, with a key of this algorithm; gpg's own directory has a short path, for its sockets."""

    def __init__(self, directory: Path, name: str, algorithm: str = "ed25519") -> None:
        self.directory = directory
        self.user = f"{name} <{name.lower()}@example.org>"
        self._home, keys = Path(tempfile.mkdtemp(dir="/tmp", prefix="sifmod-gpg-")), directory / "keys"
        weakref.finalize(self, _end, self._home)
        for path in (directory, keys):
            path.mkdir(mode=0o700)
        self._environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "LC_ALL": "C.UTF-8"}
        self._environment |= {"GNUPGHOME": str(self._home), RUNTIME.keyring: str(keys), **RUNTIME.userns}
        self.gpg("--passphrase", "", "--quick-gen-key", self.user, algorithm, "sign", "never", then=THEN)
        listing = self.gpg("--with-colons", "--list-keys").stdout
        self.fingerprint = next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr:"))
        secret = directory / "secret.asc"
        secret.write_text(self.gpg("--armor", "--export-secret-keys").stdout)
        run((RUNTIME.path, "key", "import", secret), env=self._environment).ok()
        self.secret = secret

    def gpg(self, *arguments: str, stdin: str = "", then: str = "") -> Result:
        """Run gpg with this person's keys, as if it were `then`."""
        faked = ("--faked-system-time", then) if then else ()
        return run(("gpg", "--batch", "--yes", "--no-tty", *faked, *arguments), env=self._environment, stdin=stdin).ok()

    def public(self, armored: bool = True) -> Path:
        """A file with the public key as it is now."""
        path = self.directory / ("public.asc" if armored else "public.gpg")
        armor = ("--armor",) if armored else ()
        self.gpg(*armor, "--output", str(path), "--export")
        return path

    def sign(self, sif: Path, *options: str) -> Path:
        """Have apptainer sign."""
        run((RUNTIME.path, "sign", *options, sif), env=self._environment).ok()
        return sif

    def verify(self, sif: Path) -> Result:
        """What apptainer says with this person's keyring alone."""
        return run((RUNTIME.path, "verify", "--local", sif), env=self._environment)

    def expire(self) -> None:
        """Let the key have ended one day after it was made."""
        self.gpg("--quick-set-expire", self.fingerprint, "1d", then="20250101T000100")

    def revoke(self) -> None:
        """Use the revocation certificate that gpg made with the key."""
        certificate = self._home / "openpgp-revocs.d" / f"{self.fingerprint}.rev"
        text = certificate.read_text().replace(":-----BEGIN", "-----BEGIN")
        self.gpg("--import", stdin=text)

    def end(self) -> None:
        """Stop gpg's agent and remove everything."""
        subprocess.run(("gpgconf", "--kill", "all"), env=self._environment, check=True)
        shutil.rmtree(self.directory, ignore_errors=True)  # the agent removes its sockets itself
