"""The text of a first site file, from a Survey: comments say what each key is for."""

from sifmod.actions.author.draft import quoted
from sifmod.actions.author.survey import Survey

_HEAD = """\
# The site {name}, written by `sifmod site new`. Correct it, `sifmod check` it, then choose it: --site {name}, or
# SIFMOD_SITE={name}, or `site: {name}` in ~/.config/sifmod/config.yaml or in /etc/sifmod.d. docs/site.md has every key.
name: {quoted}
description: {quoted}

# {accelerator_from}: auto looks on each machine; a site with login nodes without GPUs says rocm or cuda.
accelerator: {accelerator}
# What an easyconfig's accelerator becomes here: rocm is rocm (the host's ROCm too), devices or none; cuda is nv, nvccli
# or none.
# accelerators: {{rocm: devices, cuda: nv}}

# Where modules and images go, and where images given by name are.
# prefix: /appl/sifmod
# image_dirs: [/appl/images]
"""
_BINDS = """
# What a container sees beside the user's home directory. `optional: true` leaves one out where it is missing, as on a
# login node; `links: true` binds the places that links in it lead to; `*` is a pattern.
binds:
"""
_TAIL = """
# Variables of the distributed runscripts, where the user has set none. NCCL_NET makes a missing plugin an error.
{runscript_env}
# The site is recognised where all of these exist.
detect:
  paths: []
"""


def draft_site(name: str, accelerator: tuple[str, str], found: Survey) -> str:
    """The YAML text; `accelerator` is what was found, and how."""
    groups = (
        ("slurm", [f"{{source: {path}, optional: true}}" for path in found.slurm], "/var/spool/slurmd"),
        ("fabric", [f"{{source: {path}, optional: true}}" for path in found.fabric], "/opt/cray"),
        ("host-libs", [f"{{source: '{text}', optional: true}}" for text in found.host_libraries], "/usr/lib64/x.so*"),
        ("filesystems", [f"{{source: {path}, optional: true}}" for path in found.filesystems], "/scratch"),
    )
    lines: list[str] = []
    for group, items, example in groups:
        lines += [f"  {group}:", *(f"    - {item}" for item in items)]
        if not items:
            lines[-1] = f"  {group}: []  # e.g. [{{source: '{example}', optional: true}}]"
    head = _HEAD.format(name=name, quoted=quoted(name), accelerator=accelerator[0], accelerator_from=accelerator[1])
    return head + _BINDS + "\n".join(lines) + "\n" + _TAIL.format(runscript_env=_runscript_env(found.networks))


def _runscript_env(networks: tuple[str, ...]) -> str:
    if not networks:
        return "# runscript_env: {NCCL_SOCKET_IFNAME: hsn0, NCCL_NET: AWS Libfabric}\n"
    plugin = "IB" if all(name.startswith("ib") for name in networks) else "AWS Libfabric"
    return f"runscript_env:\n  NCCL_SOCKET_IFNAME: {','.join(networks)}\n  # NCCL_NET: {plugin}\n"
