"""What an easyconfig's accelerator becomes on a site: real runtimes are told of it, where the device is."""

import os
import re
from pathlib import Path

import pytest

from sifmod.config.load_easyconfig import load_easyconfig
from sifmod.config.load_site import load_site
from sifmod.module.make_plan import Choices, make_plan
from sifmod.module.plan import Plan
from support.command import run
from support.config import write
from support.devices import with_devices
from support.generation import make_generation
from support.module_tool import ModuleTool
from support.runtime import RUNTIME
from support.wrappers import loaded, tiny_plan

pytest_plugins = ("support.wrapper_fixtures",)

SHARED_TMP = "/tmp"  # of the host, which a container has, or has not

ROCM, NV, CLI = "rocm", "legacy binds for nv", "nvidia-container-cli for"


def planned(shared_tmp: Path, accelerator: str, site: str) -> Plan:
    """The module of the tiny image, with what the site makes of the accelerator."""
    image = "image: {sources: [/x.sif]}"
    path = write(shared_tmp / "ec" / "X-1.yaml", f"name: X\nversion: '1'\n{image}\naccelerator: {accelerator}\n")
    site_file = write(shared_tmp / "ec" / "site.yaml", f"name: here\narch: amd64\n{site}\n")
    environ = {"HOME": str(shared_tmp), "SIFMOD_CONFIG_DIR": "/no/such"}
    there = load_site({"site": str(site_file)}, environ)
    easyconfig = load_easyconfig(path, there, None, {}, environ).easyconfig
    decided = make_plan(easyconfig, there.site, Choices("X-1", "copy"))
    return tiny_plan(shared_tmp / "prefix", accelerator=accelerator, gpu_flags=decided.gpu_flags, binds=decided.binds)


@pytest.mark.parametrize("devices", ["", "kfd nvidiactl"])
@pytest.mark.parametrize(
    ("accelerator", "site", "told"),
    [
        ("rocm", "", {"kfd": ROCM}),
        ("rocm", "accelerators: {rocm: devices}", {}),
        ("rocm", "accelerators: {rocm: none}", {}),
        ("cuda", "", {"nvidiactl": NV}),
        ("cuda", "accelerators: {cuda: nvccli}", {"nvidiactl": CLI}),
        ("cuda", "accelerators: {cuda: none}", {}),
        ("none", "accelerator: cuda", {}),
    ],
)
def test_the_runtime_is_told_where_the_device_is(
    shared_tmp: Path, tiny: Path, accelerator: str, site: str, told: dict[str, str], devices: str
) -> None:
    """And on a node without it nothing is said."""
    wrapper = make_generation(planned(shared_tmp, accelerator, site), tiny) / "bin" / "in-sh"
    (shared_tmp / "dev").mkdir()
    command = (*with_devices(shared_tmp / "dev", devices), wrapper, "-c", ":")
    expected = {told[device] for device in devices.split() if device in told}
    debugging = run(command, env={**os.environ, f"{RUNTIME.prefix}_DEBUG": "1"})
    assert set(re.findall("Using (.*) GPU setup", debugging.stderr)) == expected, debugging.stderr
    if not expected:
        silent = run(command)
        assert (silent.code, silent.stderr) == (0, "")


@pytest.mark.parametrize("devices", ["", "kfd"])
def test_bare_devices_are_all_that_is_seen(shared_tmp: Path, tiny: Path, module_tool: ModuleTool, devices: str) -> None:
    """Also in a container with a /dev of its own; the load finds the same as the wrapper, on the node that it is on."""
    wanted = planned(shared_tmp, "rocm", "accelerators: {rocm: devices}")
    wrapper = make_generation(wanted, tiny) / "bin" / "in-sh"
    (shared_tmp / "dev").mkdir()
    contained = {**os.environ, "APPTAINER_CONTAIN": "1", "SINGULARITY_CONTAIN": "1"}
    look = "ls -d /dev/kfd /dev/dri 2>/dev/null || true"
    result = run((*with_devices(shared_tmp / "dev", devices), wrapper, "-c", look), env=contained)
    assert (result.stdout, result.stderr) == ("/dev/kfd\n" if devices else "", "")
    there = loaded(module_tool, wanted)
    assert ("/dev/kfd" in there["SINGULARITY_BINDPATH"]) == Path("/dev/kfd").exists()
    assert not {"SINGULARITY_ROCM", "APPTAINER_ROCM"} & there.keys()


@pytest.mark.parametrize(
    ("accelerator", "site", "variable"),
    [
        ("rocm", "", "ROCM"),
        ("cuda", "", "NV"),
        ("cuda", "accelerators: {cuda: nvccli}", "NVCCLI"),
        ("rocm", "accelerators: {rocm: none}", ""),
        ("none", "accelerator: cuda", ""),
    ],
)
def test_a_load_tells_a_bare_runtime(
    shared_tmp: Path, tiny: Path, module_tool: ModuleTool, accelerator: str, site: str, variable: str
) -> None:
    wanted = planned(shared_tmp, accelerator, site)
    make_generation(wanted, tiny)
    there = loaded(module_tool, wanted)
    found = {name for name in there if re.fullmatch("(SINGULARITY|APPTAINER)_(NV|NVCCLI|ROCM)", name)}
    assert found == ({f"{prefix}_{variable}" for prefix in RUNTIME.prefixes} if variable else set())
