"""scripts/demo from an unpacked sdist; which index gives torch, so that nobody downloads CUDA to see a demo."""

import io
import os
import socket
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.command import ROOT, run
from support.images import Images
from support.runtime import RUNTIME
from support.web import Web, answer

HTML = {"Content-Type": "text/html"}
TAGS = f"cp311-cp311-manylinux_2_17_{os.uname().machine}"


def asked(index: str) -> tuple[str, str]:
    """What the script would tell pip, and what it says."""
    command = (ROOT / "scripts" / "build-demo-image", "--index")
    environment = {**os.environ, "DEMO_TORCH_INDEX": index, "no_proxy": "*"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


def offer(web: Web, place: str, version: str, name: str = "torch", tags: str = TAGS) -> str:
    """An index with one wheel, of torch, which is empty; its URL."""
    file, data = f"{name}-{version}-{tags}.whl", io.BytesIO()
    with zipfile.ZipFile(data, "w") as wheel:
        about = f"{name}-{version}.dist-info"
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\n")
        wheel.writestr(f"{about}/RECORD", "")
    quoted = f"/{place}/{name}/{file.replace('+', '%2B')}"
    page = f'<a href="{quoted}">{file}</a>\n'
    web.answers |= {f"/{place}/{name}/": answer(200, page.encode(), HTML), quoted: answer(200, data.getvalue(), {})}
    return web.url(f"/{place}", "127.0.0.1")


@pytest.fixture
def web() -> Iterator[Web]:
    """A server on the loopback address."""
    started = Web()
    started.start()
    yield started
    started.stop()


def test_a_cpu_build_is_preferred_to_what_pip_is_configured_for(tmp_path: Path, web: Web) -> None:
    configured, cpu = offer(web, "configured", "2.13.0"), offer(web, "cpu", "2.13.0+cpu")
    option, said = asked(cpu)
    assert (option, said) == (f"--extra-index-url {cpu}\n", "")
    pip = f"{sys.executable} -m pip -qq download --no-deps --only-binary=:all: --python-version 3.11 {option.strip()}"
    environment = {"PATH": os.environ["PATH"], "PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": configured}
    subprocess.run([*pip.split(), "-d", str(tmp_path / "got"), "torch==2.13.0"], env=environment, check=True)
    assert [path.name for path in (tmp_path / "got").iterdir()] == [f"torch-2.13.0+cpu-{TAGS}.whl"]


def test_an_index_without_one_is_left_alone(web: Web) -> None:
    option, said = asked(offer(web, "cuda", "2.13.0"))
    assert option == ""
    assert "no CPU build of torch from http://127.0.0.1" in said
    assert asked("") == ("", "")


def test_an_index_that_says_nothing_is_waited_for_shortly() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        option, said = asked(f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert option == ""
    assert "within 5 s; asking pip's own index alone" in said


def test_no_large_download_begins_by_itself(tmp_path: Path, web: Web) -> None:
    """Where the index with CPU builds cannot be reached, pip's own may have a GPU build only."""
    index = offer(web, "configured", "2.13.0")
    offer(web, "configured", "1.0", "pip", "py3-none-any")
    environment = {**os.environ, "PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index, "no_proxy": "*"}
    environment |= {"DEMO_TORCH_INDEX": "http://127.0.0.1:1/cpu", "DEMO_DOWNLOAD_MB": "0"}
    command = (ROOT / "scripts" / "build-demo-image", tmp_path / "oci", "torch==2.13.0")
    done = run(command, env=environment)
    assert done.code == 1
    assert "no CPU build of torch from http://127.0.0.1:1/cpu within 5 s" in done.stderr
    assert "these are 1 MB to download, about 2 MB unpacked, and at most 0 are allowed: nothing was down" in done.stderr
    assert "Set DEMO_TORCH_INDEX to an index with CPU builds that this machine reaches" in done.stderr
    assert not (tmp_path / "oci").exists()


def test_the_demo_from_an_unpacked_sdist(shared_tmp: Path, images: Images) -> None:
    """In a directory of its own, with the demo's image at hand and packages of this environment: without an index."""
    build = (sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(shared_tmp))
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (packed,) = shared_tmp.glob("sifmod-*.tar.gz")
    (shared_tmp / "empty").mkdir()
    subprocess.run(("tar", "-xf", packed, "-C", shared_tmp / "empty"), check=True)  # tarfile has no filter in 3.11.2
    (root,) = (shared_tmp / "empty").iterdir()
    environment = root / ".venv"
    venv.create(environment, with_pip=True)
    (site,) = environment.glob("lib/python3.*/site-packages")
    (site / "all.pth").write_text(f"{root}\n{sysconfig.get_path('purelib')}\n")
    command = environment / "bin" / "sifmod"
    command.write_text(f"#!{environment}/bin/python\nfrom sifmod_command import main\nraise SystemExit(main())\n")
    command.chmod(0o755)
    (environment / ".installed").touch()
    (root / "build").mkdir()
    (root / "build" / "pytorch-2.13.0-oci").symlink_to(images.pytorch_layout)
    prefix = shared_tmp / "a prefix"
    own = {"HOME": str(shared_tmp), "PATH": RUNTIME.search_path, "SIFMOD_COMPRESSION": "lz4", **RUNTIME.userns}
    own["SIFMOD_PREFIX"] = str(prefix)
    done = subprocess.run([root / "scripts" / "demo"], capture_output=True, text=True, env=own, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for said in (
        f"SIF={prefix}/software/PyTorch/",
        " says 14.0\n",
        "rank 1 of 2, local rank 1: 3.0\n",
        f'{os.path.basename(RUNTIME.path)} exec "$SIF" conda-python-distributed build/ddp.py\n',
        f"\n== done: module use '{prefix}/modules'; module load PyTorch/2.13.0-cpu\n",
    ):
        assert said in done.stdout, done.stdout + done.stderr
    assert f"from {root}/easyconfigs/PyTorch/PyTorch-2.13.0.yaml" in done.stderr
