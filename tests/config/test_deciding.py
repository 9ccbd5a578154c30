"""A bundle brings each setting that decides a module's files: a site's keys, each with another value, and the files."""

from pathlib import Path

import pytest

from sifmod.config.load_easyconfig import load_easyconfig
from sifmod.config.load_site import load_site
from sifmod.config.site import DECIDING, keys_in_order
from sifmod.module.make_plan import Choices, make_plan
from sifmod.module.render import render
from support.config import write

OTHERS = {
    "site": "lumi-g",
    "accelerator": "rocm",
    "runtime": "singularity",
    "prefix": "/elsewhere",
    "user_prefix": "/mine",
    "robot_paths": "[/robot]",
    "binds": "{own: [/usr]}",
    "mpi_profile": "lumi-cray-mpich",
    "module_syntax": "tcl",
    "umask": "'027'",
    "trees": "[/tree]",
    "stores": "[/store]",
    "arch": "arm64",
    "hooks": "{after_install: [/bin/true]}",
    "detect": "{paths: [/none]}",
    "name": "other",
    "description": "another",
    "accelerators": "{cuda: nvccli}",
    "image_dirs": "[/images]",
    "env": "{A: b}",
    "host_env": "{A: b}",
    "runscript_env": "{A: b}",
    "gpu_selection": "none",
    "driver_runs": "{cuda: ['<12']}",
    "gpus_per_node": "8",
    "mpi": "host",
    "cpus_per_gpu": "3",
    "cpu_bind": "cores",
    "slurm": "{account: me}",
    "cache_directory": "/caches",
    "scratch": "[/scratch/$USER]",
    "link": "reference",
    "lock_lease": "60",
    "sharing": "site",
    "group": "games",
    "mark_days": "3",
    "compression": "gzip:1",
    "connections": "2",
    "processors": "2",
    "memory": "1G",
    "mirrors": "{docker.io: [mirror.io]}",
    "insecure_registries": "[mirror.io]",
    "token_servers": "{docker.io: [mirror.io]}",
    "protected": "[numpy]",
    "stale_layer": "refuse",
    "package_indexes": "{cu126: 'https://example.org/cu126'}",
    "extensions": "[torch]",
    "striping": "{count: 2}",
    "signatures": "{policy: warn}",
    "warn_without_version": "true",
    "spider_cache": "{directory: /cache, timestamp: /cache/time}",
    "limits": "{lock_size: 1M}",
    "catalogue": "{text: some}",
}
# a bundle names its site; what a runtime needs differs, so its kind has to be the one that is here
APART = {"site", "runtime"}
_COMMON = "accelerator: cuda\ncontents: {cuda: '13.0', torch: '2.0'}\n"
EASYCONFIGS = (
    f"{_COMMON}image: {{sources: [x.sif]}}\nwrappers: [python]\nuser_software: true\nrunscripts: [get-master]\n",
    f"{_COMMON}image: {{build: {{from: x.sif, pip: [numpy]}}}}\nmpi: host\nconda: {{prefix: /c, env: e}}\n",
    "modules: [Other/1]\n",
)


def rendered(directory: Path, said: dict[str, str]) -> list[dict[str, str]]:
    """The files of the easyconfigs with these settings."""
    settings = {"accelerator": "cuda", "arch": "amd64", **said}
    write(directory / "etc/a.yaml", "".join(f"{key}: {value}\n" for key, value in settings.items()))
    environ = {"HOME": str(directory), "SIFMOD_CONFIG_DIR": str(directory / "etc")}
    site, found = load_site({}, environ), []
    for text in EASYCONFIGS:
        path = write(directory / "X-1.yaml", f"name: X\nversion: '1'\n{text}")
        easyconfig = load_easyconfig(path, site, None, {}, environ).easyconfig
        plan = make_plan(easyconfig, site.site, Choices("X-1.yaml", site.site.link))
        found.append({file.path: file.text for file in render(plan, 1)})
    return found


def test_each_key_has_another_value() -> None:
    assert {*OTHERS, "extends"} == keys_in_order().keys()  # `extends`: only of a site's file


@pytest.mark.parametrize("key", OTHERS)
def test_a_setting_that_changes_a_file_is_in_a_bundle(key: str, tmp_path: Path) -> None:
    """`driver_runs` and `image_dirs` were not: elsewhere the modules did not match the lock."""
    changed = rendered(tmp_path, {key: OTHERS[key]}) != rendered(tmp_path, {})
    assert not changed or key in {*DECIDING, *APART}
