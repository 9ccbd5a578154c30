"""One place with all that surroundings have been found to decide: for whoever types a command of sifmod there.

An ordinary user with a home that is a link, umask 077 and LC_ALL=C, without a terminal, a blank in every path, little
room in TMPDIR, other Pythons in the variables, and projects, settings and an environment of others above the prefix.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.command import Result
from support.config import write
from support.images import Images
from support.module_tool import ModuleTool, Step
from support.runtime import RUNTIME
from support.user import OrdinaryUser, ordinary_user
from support.wheels import wheel

PYTHON_HOME = "/opt/miniconda3/envs/pytorch"  # of the image
LIBRARY = f"{PYTHON_HOME}/lib/python3.11/site-packages"
MODULE = "Python/3.11"
EASYCONFIG = """
name: {name}
version: '3.11'
description: Python
preset: pytorch
path+: [/opt/miniconda3/envs/pytorch/bin]
wrappers: [python, pip]
runscripts: [conda-python-distributed]
sanity_check: {{commands: ["python -c 'import sys'"]}}
image: {image}
"""
INSTALL = ("--link", "reference", "--module-syntax", "both")
ROOM = 16 << 20  # bytes of TMPDIR; the image has more
UNREACHABLE = "http://127.0.0.1:9/simple"  # nobody listens there, and none may be asked
# what is read of a directory above, or of one where a command is typed, is not for the image's Python
ABOVE = {
    ".python-version": "3.8\n",
    "uv.toml": f'required-version = ">=99"\nindex-url = "{UNREACHABLE}"\npython-preference = "only-managed"\n',
    "pyproject.toml": f"""
        [project]
        name = "above"
        version = "1"
        requires-python = "<3.9"
        dependencies = ["helper<2"]
        [tool.uv]
        required-version = ">=99"
        index-url = "{UNREACHABLE}"
        constraint-dependencies = ["helper<2"]
        """,
}
OF_OTHERS = "raise SystemExit('a module of the surroundings was imported')\n"


@dataclass(frozen=True)
class OddPlace:
    """`top/home` is a link to `top/file system/home`; the tree of a flow is in the home `me`, below its own name."""

    top: Path
    user: OrdinaryUser
    name: str
    command: Path  # sifmod
    cluster: Mapping[str, str]  # what names a Slurm

    @property
    def home(self) -> Path:
        """As HOME says it, through the link."""
        return self.top / "home" / "me"

    @property
    def work(self) -> Path:
        """Where commands are typed, through the link too."""
        return self.home / "my work" / self.name

    @property
    def prefix(self) -> Path:
        return self.work / "the tree"

    @property
    def image(self) -> Path:
        return self.top / "images/python.sif"

    @property
    def wheels(self) -> Path:
        return self.top / "wheels"

    @property
    def environment(self) -> dict[str, str]:
        venv = self.home / ".venv"
        return {
            "HOME": str(self.home),
            "LC_ALL": "C",
            "PATH": f"{venv}/bin:{RUNTIME.search_path}",
            "TMPDIR": str(self.top / "little room"),
            "VIRTUAL_ENV": str(venv),
            "CONDA_PREFIX": "/opt/conda of the host",
            "CONDA_DEFAULT_ENV": "base",
            "CONDA_SHLVL": "1",
            "PYTHONPATH": str(self.top / "modules of others"),
            "SSL_CERT_FILE": "/etc/no certificates.pem",
            "PIP_INDEX_URL": UNREACHABLE,
            "PIP_TARGET": str(self.work / "nowhere"),
            "PIP_REQUIRE_VIRTUALENV": "1",
            "PIP_NO_BINARY": ":all:",
            "UV_PYTHON": "3.8",
            "UV_NO_INDEX": "1",
            "UV_FIND_LINKS": str(self.wheels),
            "SIFMOD_CONFIG_DIR": str(self.top / "no settings"),
            "SIFMOD_PREFIX": str(self.prefix),
            **self.cluster,
            # where all of this lies, and would be seen inside though nothing binds it
            **{f"{name}_NO_MOUNT": "tmp" for name in ("SINGULARITY", "APPTAINER")},
        }

    def run(self, words: Sequence[str | Path], env: Mapping[str, str] | None = None) -> Result:
        """A command that has no terminal, here."""
        odd = ("setsid", "--wait", "bash", "-c", 'umask 077; exec "$@"', "bash")
        return self.user.run((*odd, *words), env={**self.environment, **(env or {})}, cwd=self.work)

    def sifmod(self, *words: str | Path) -> Result:
        """A command of sifmod, which has to succeed without a word of a bug."""
        done = self.run((self.command, *words)).ok()
        assert "Traceback" not in done.stderr
        return done

    def python(self, code: str, module: str = MODULE) -> str:
        """What the module's `python` prints."""
        done = self.run((self.prefix / "software" / module / "bin/python", "-c", code)).ok()
        assert done.stderr == "", done
        return done.stdout

    def loaded(self, tool: ModuleTool, *steps: str) -> tuple[Step, ...]:
        """Steps in a shell that has the module tool: none may fail or warn."""
        user = self.user.user if os.geteuid() == 0 else None
        prepared = ("umask 077", f"cd '{self.work}'", *steps)
        done = tool.session(prepared, self.prefix / "modules", self.environment, user)[2:]
        assert [(step.code, step.stderr) for step in done] == [(0, "")] * len(done), done
        return done

    def write(self, name: str, text: str) -> Path:
        """A file of the user where commands are typed."""
        return self.user.own(write(self.work / name, text))

    def easyconfig(self, name: str, image: str) -> Path:
        return self.write(f"{name}-3.11.yaml", EASYCONFIG.format(name=name, image=image))

    def install(self) -> None:
        """The module of the image, which stays where it is."""
        self.sifmod("install", self.easyconfig("Python", f"{{sources: ['{self.image}']}}"), *INSTALL)

    def listing(self) -> set[str]:
        """Every file of the tree, but for the log and what locks leave."""
        hidden = {".locks", "log"}
        paths = (path.relative_to(self.prefix) for path in self.prefix.rglob("*") if not path.is_dir())
        return {str(path) for path in paths if not hidden & set(path.parts)}


@contextmanager
def odd_place(images: Images, cluster: Mapping[str, str]) -> Iterator[Callable[[str], OddPlace]]:
    """Gives the place of each flow by its name."""
    top = Path(tempfile.mkdtemp(dir="/tmp", prefix="sifmod-test-"))
    top.chmod(0o755)
    me = top / "file system/home/me"
    me.mkdir(parents=True)
    (top / "home").symlink_to("file system/home")
    user = ordinary_user(me)
    for name, version in (("demo", "1.0"), ("helper", "1.0"), ("helper", "2.5")):
        (top / "wheels").mkdir(exist_ok=True)
        wheel(top / "wheels", name, version, requires=("helper>=2",) if name == "demo" else (), scripts=("demo-says",))
    (top / "images").mkdir()
    shutil.copyfile(images.python_sif, top / "images/python.sif")
    for name in ("demo", "helper", "yaml", "click", "pip", "packaging", "torch"):
        write(top / f"modules of others/{name}.py", OF_OTHERS)
    user.run(("/usr/bin/python3", "-m", "venv", "--without-pip", me / ".venv")).ok()
    for directory in (me, me / "my work"):
        for name, text in ABOVE.items():
            write(directory / name, text)
    (library,) = (me / ".venv/lib").glob("python3.*/site-packages")
    write(library / "demo.py", OF_OTHERS)
    write(library / "helper-9.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: helper\nVersion: 9.0\n")

    command = sifmod_for(user, top / "sifmod")

    def place(name: str) -> OddPlace:
        made = OddPlace(top, user, name, command, cluster)
        made.work.mkdir()
        user.own(me)
        return made

    try:
        with little_room(user, top / "little room"):
            yield place
    finally:
        subprocess.run(("chmod", "-R", "u+rwX", top), check=False)
        shutil.rmtree(top)


def sifmod_for(user: OrdinaryUser, directory: Path) -> Path:
    """This checkout's command; by the system's Python where root's own is in a home that is closed to the user."""
    command = Path(sys.executable).with_name("sifmod")
    if user.run(("sh", "-c", '"$0" --version', command)).code == 0:
        return command
    directory.mkdir()
    user.run(("/usr/bin/python3", "-m", "venv", "--without-pip", user.own(directory))).ok()
    library = next(directory.glob("lib/python3.*/site-packages"))
    ours = Path(sysconfig.get_path("purelib"))
    assert library.parent.name == ours.parent.name, f"this Python is closed to {user}, and the system's is another one"
    (library / "ours.pth").write_text(f"import site; site.addsitedir({str(ours)!r})\n")
    (directory / "bin/uv").symlink_to(command.with_name("uv"))
    _, *lines = command.read_text().splitlines(keepends=True)
    own = directory / "bin/sifmod"
    own.write_text("".join((f"#!{directory}/bin/python\n", *lines)))
    own.chmod(0o755)
    return own


@contextmanager
def little_room(user: OrdinaryUser, directory: Path) -> Iterator[None]:
    """A file system of the user's with ROOM, seen by all of the user's processes; at the end nothing is in it."""
    directory.mkdir()
    user.own(directory)
    disk = directory.with_suffix(".ext4")
    disk.touch()
    user.own(disk)
    os.truncate(disk, ROOM)
    user.run(("mkfs.ext4", "-q", "-E", "root_owner", disk), env=_WITH_SBIN).ok()
    user.run(("fuse2fs", disk, directory)).ok()
    try:
        yield
        left = user.run(("ls", "-A", "-I", "lost+found", "-I", ".fuse_hidden*", directory)).ok().stdout
        assert left == "", left
    finally:
        user.run(("fusermount3", "-u", "-z", directory)).ok()


_WITH_SBIN = {"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}
