"""What was added to a layer is imported once, in the image: what cannot fit is refused, the rest is told."""

import socket
import time
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from sifmod.errors import InstallError
from sifmod.system import remove_directory
from support.config import write
from support.images import Images
from support.layered import NAME, PLAIN, Machine, make_machine
from support.wheels import wheel


@pytest.fixture
def machine(shared_tmp: Path, images: Images) -> Machine:
    """Its image is built around pip."""
    made = make_machine(shared_tmp / "ma chine", images)
    made.install(images.python_sif, rest=f"{PLAIN}\nprotected: [pip]\n")
    return made


MISFITS = {
    "misfit": "raise RuntimeError('operator torchvision::nms does not exist')",
    "symbol": "raise ImportError('/x/_C.so: undefined symbol: _ZN3c106detail14torchCheckFail')",
}
CURIOSITIES = {
    "driver": ("raise ImportError('libcuda.so.1: cannot open shared object file')", "ImportError: libcuda.so.1"),
    "leaves": ("import sys; sys.exit(3)", "SystemExit: 3"),
    "caller": ("import socket; socket.create_connection(('192.0.2.1', 80), 5)", "OSError: there is no network while"),
    "asks": ("import socket; socket.getaddrinfo('example.org', 80)", "OSError: there is no network while"),
    "crashes": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "Python exited with code"),
}
CHILDREN = """
import os, subprocess, sys, time
code = "import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
reached = subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode == 0
if not os.fork():
    os.setsid()
    time.sleep(100.25)
raise ImportError(f"reached {{reached}}, login {{'UV_INDEX_OWN_PASSWORD' in os.environ}}")
"""
GOOD = """
import os, pathlib, helper
if os.environ.get("CUDA_VISIBLE_DEVICES") == os.environ.get("ROCR_VISIBLE_DEVICES") == "":
    pathlib.Path.home().joinpath("trace").touch()
__version__ = "1.0"
"""


@pytest.mark.parametrize("name", MISFITS)
def test_what_was_built_for_something_else_is_refused(machine: Machine, name: str) -> None:
    wheel(machine.wheels, name, files={f"{name}/__init__.py": MISFITS[name]})
    before = machine.listing()
    refused = machine.add(name)
    assert (refused.code, machine.listing()) == (2, before)
    assert f"error: {name} 1.0 was built for something else than the image's pip " in refused.stderr
    assert "--no-import adds it anyway" in refused.stderr
    where = ("--no-index", "--find-links", str(machine.wheels))
    machine.sifmod("layer", "add", NAME, name, "--no-import", *where).ok()
    lock = write(machine.top / "pylock.toml", (machine.live() / "pylock.toml").read_text())
    machine.sifmod("remove", NAME, "--all").ok()
    before = machine.listing()
    assert machine.sifmod("layer", "sync", NAME, str(lock), *where).code == 2
    assert machine.listing() == before
    machine.sifmod("layer", "sync", NAME, str(lock), "--no-import", *where).ok()


def test_what_may_be_right_elsewhere_is_told(machine: Machine) -> None:
    for name, (code, why) in CURIOSITIES.items():
        wheel(machine.wheels, name, files={f"{name}/__init__.py": code})
        said = machine.add(name).ok().stderr
        assert f"warning: {name} cannot be imported here: {why}" in said
    assert "warning" not in machine.sifmod("remove", NAME, *CURIOSITIES).ok().stderr


def test_what_a_wheel_puts_beside_its_own_metadata(machine: Machine) -> None:
    """As a file of its data, which neither pip nor uv compares with anything."""
    place = "odd-1.0.data/purelib/other.dist-info"
    path = wheel(machine.wheels, "odd", files={f"{place}/direct_url.json": "file:///user-layer/work/x"})
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(f"{place}/RECORD", b"\xff,,\nother.dist-info/direct_url.json,,\n")
    machine.add("odd").ok()
    wheel(machine.wheels, "hides", files={"hides.pth": "own\n", "own/pip/__init__.pyc": ""})
    zipped = wheel(machine.wheels, "zipped", files={"zipped.pth": "in.zip\n"})
    with zipfile.ZipFile(machine.top / "in.zip", "w") as file:
        file.writestr("pip/__init__.py", "")
    with zipfile.ZipFile(zipped, "a") as file:
        file.write(machine.top / "in.zip", "in.zip")
    for name in ("hides", "zipped"):
        refused = machine.add(name)
        assert refused.code == 2
        assert "brings its own pip; the image has pip" in refused.stderr


def test_a_module_of_the_image_that_a_package_of_another_name_hides(shared_tmp: Path, images: Images) -> None:
    """As opencv-python-headless over opencv-python; nothing was said."""
    machine = make_machine(shared_tmp / "ma chine", images)
    wheel(machine.wheels, "hides", files={"pip/__init__.py": "", "tests/__init__.py": ""})
    said = machine.add("hides").ok().stderr
    assert "warning: hides 1.0 brings its own pip, which hides that of the image's pip\n" in said
    assert said.count("brings its own") == 1
    wheel(machine.wheels, "pip", "99.0")
    assert "brings its own" not in machine.add("pip", "--layer", "other").ok().stderr


@pytest.mark.parametrize("how", [(), ("--unpacked",)])
def test_a_wheel_that_is_a_thousand_directories_deep(machine: Machine, how: tuple[str, ...]) -> None:
    wheel(machine.wheels, "deep", files={"/".join(["d"] * 1500): ""})
    before = machine.listing()
    refused = machine.add("deep", "--no-import", *how)
    assert (refused.code, machine.listing()) == (InstallError.exit_code, before), refused.stderr
    assert "directories that are nested too deep" in refused.stderr
    assert not [*machine.top.glob("uv/sifmod-linked/*")]
    remove_directory(machine.top / "uv")  # where uv has unpacked it, too


def test_a_wheel_of_thousands_of_commands(machine: Machine) -> None:
    said = "[console_scripts]\n" + "".join(f"many-{number} = many:main\n" for number in range(2001))
    wheel(machine.wheels, "many", files={"many-1.0.dist-info/entry_points.txt": said})
    before = machine.listing()
    refused = machine.add("many", "--no-import")
    assert (refused.code, machine.listing()) == (InstallError.exit_code, before), refused.stderr
    assert "the packages have 2001 commands, more than 2000 (`limits: {wrappers: N}`" in refused.stderr


def test_an_import_leaves_nothing_and_ends(machine: Machine) -> None:
    wheel(machine.wheels, "good", requires=("helper",), files={"good/__init__.py": GOOD, "good.pth": ""})
    wheel(machine.wheels, "endless", files={"endless/__init__.py": "while True: pass"})
    wheel(machine.wheels, "data", empty=True, files={"data-1.0.data/data/share/x": "x"})
    assert "warning" not in machine.add("good", "data").ok().stderr
    assert machine.python("import good, helper; print(good.__version__)").ok().stdout == "1.0\n"
    began = time.monotonic()
    assert "endless cannot be imported here: it takes longer than 20 seconds" in machine.add("endless").ok().stderr
    assert time.monotonic() - began >= 20
    assert list(machine.top.rglob("trace")) == []


def test_what_an_import_starts_has_no_network_and_ends(machine: Machine) -> None:
    """And no login of an index; a package of a stranger sent one away, and left a process."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = CHILDREN.format(port=server.getsockname()[1])
        wheel(machine.wheels, "starts", files={"starts/__init__.py": code})
        said = machine.add("starts", env={"UV_INDEX_OWN_PASSWORD": "S3CRET"}).ok().stderr
    assert "starts cannot be imported here: ImportError: reached False, login False" in said
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            commands.append(path.read_bytes())
    assert [words for words in commands if b"imports.json\0starts" in words] == []
