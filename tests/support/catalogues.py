"""Entries of a catalogue, with all that one can say, and with texts of somebody who means harm."""

from dataclasses import replace

from plans import HELP
from sifmod.actions.catalogue.catalogue import Catalogue, files_of
from sifmod.actions.catalogue.entry import AboutSite, Entry, LastTest, compared
from sifmod.config.name import ModuleName
from sifmod.module.plan import File

DIGEST = "ab" * 32
PLAIN = Entry(
    module=ModuleName("PyTorch", "2.4.0-cuda-12.4"),
    version="2.4.0",
    accelerator="cuda",
    arch="amd64",
    site="hilltop",
    about=replace(
        HELP,
        contents=(("torch", "2.4.0"), ("deepspeed", "0.14.2")),
        whatis=("Keywords: PyTorch, training", "License: BSD-3-Clause"),
    ),
    source="docker://registry.site/pytorch:2.4.0",
    load=("module use /appl/modules", "module load PyTorch/2.4.0-cuda-12.4"),
    add="sifmod add PyTorch/2.4.0-cuda-12.4 PACKAGE",
    job_script="#!/bin/bash\n#SBATCH --nodes=2\nmodule load PyTorch/2.4.0-cuda-12.4 || exit\nsrun ${#A[@]} <in\n",
    sha256=DIGEST,
    size=9_000_000_000,
    installed_at="2026-11-01T10:00:00Z",
    last_test=LastTest("2026-11-02T10:00:00.123Z", "n1", passed=True),
    packages=(("deepspeed", "0.14.2"), ("numpy", "1.26.4"), ("torch", "2.4.0")),
    default=True,
    labels=(("team", "ai"),),
)
OLDER = replace(
    PLAIN,
    module=ModuleName("PyTorch", "2.2.0-cuda-12.1"),
    version="2.2.0",
    about=replace(HELP, contents=(("torch", "2.2.0"), ("apex", "0.1"))),
    sha256="cd" * 32,
    size=8_000_000_000,
    installed_at="2026-01-01T10:00:00Z",
    packages=(("apex", "0.1"), ("numpy", "1.26.0"), ("torch", "2.2.0")),
    status="deprecated",
    until="2027-03-31",
    message="Use 2.4.0.",
    successor=str(PLAIN.module),
    default=False,
    last_test=None,
    labels=(("team", "vision"),),
)
NOT_INSTALLED = replace(
    PLAIN,
    module=ModuleName("vLLM", "0.11.2-rocm"),
    version="0.11.2",
    accelerator="rocm",
    site="",
    about=replace(HELP, description="Serves large models.", contents=(("vllm", "0.11.2"),)),
    source="docker://registry.site/vllm:0.11.2",
    install="sifmod install vLLM-0.11.2-rocm",
    sha256="",
    size=0,
    installed_at="",
    last_test=None,
    packages=(),
    status="not installed",
    default=False,
    labels=(),
)
HOSTILE = "\"'></h2></script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\"> \
{{ 7*7 }} {% raw %} ${x} `x` [a](javascript:alert(1)) --8<-- \"/etc/passwd\" | \\ \x1b[31m \u202e \ud800 -->"
EVIL = replace(
    PLAIN,
    module=ModuleName("Evil", "1.0"),
    version="1.0",
    accelerator="none",
    site=HOSTILE,
    about=replace(
        HELP,
        description=f'{HOSTILE}\n\n# {HOSTILE}\n\n1. one\n\n    code\n\n--8<-- "/etc/passwd"\n\n!!! note',
        homepage="javascript:document.title='taken'",
        docurls=('https://x.site/"onmouseover="document.title=1', HOSTILE),
        whatis=(f"License: {HOSTILE}", f"Keywords: {HOSTILE}"),
        contents=((HOSTILE, HOSTILE),),
    ),
    source=HOSTILE,
    load=(HOSTILE,),
    install=HOSTILE,
    job_script=f"</code></pre>{HOSTILE}\n\n\n# x\n```\n{HOSTILE}",
    packages=((HOSTILE, HOSTILE),),
    labels=((HOSTILE, HOSTILE),),
    until=HOSTILE,
    message=HOSTILE,
    successor=HOSTILE,
    status="retired",
    default=False,
)
ALL = (OLDER, PLAIN, NOT_INSTALLED, EVIL)


def catalogue(title: str, entries: tuple[Entry, ...], site: AboutSite | None = None) -> tuple[File, ...]:
    """The files of a catalogue of these modules."""
    return files_of(Catalogue(title, compared(entries), site or AboutSite()))
