"""sifmod from wheels, in a virtual environment of its own; contrib/README.md says how to make the tar file."""

import os

from spack.package import *


class Sifmod(Package):
    """Installs container images as environment modules, from one YAML file each."""

    homepage = "https://example.org/sifmod"
    # put the tar file below a mirror, or beside the package repository
    url = "file:///opt/sources/sifmod-0.2.0-wheels.tar"

    license("MIT")

    version("0.2.0", url="file:///opt/sources/sifmod-0.2.0-wheels.tar")

    depends_on("python@3.11:", type=("build", "run"))

    def install(self, spec, prefix):
        """Its Python stays out of PATH, where it would hide the user's."""
        python = spec["python"].command
        python("-m", "venv", prefix.venv)
        pip = Executable(prefix.venv.bin.pip)
        pip("install", "--no-index", "--find-links", self.stage.source_path, f"sifmod=={spec.version}")
        mkdirp(prefix.bin)
        os.symlink(os.path.join("..", "venv", "bin", "sifmod"), prefix.bin.sifmod)
        os.symlink(os.path.join("venv", "share"), prefix.share)
