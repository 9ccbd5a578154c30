"""A Plan to start from: small, complete, with paths that a test replaces by its own; and its files on disk."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sifmod.config.easyconfig import SanityCheck
from sifmod.config.name import ModuleName
from sifmod.module.plan import Activation, Bind, Help, ImagePlan, Plan, Runtime, Wrapper
from sifmod.module.render import render, render_stub

IMAGE = ImagePlan(
    filename="pytorch-2.2.0.sif",
    sources=("docker://registry.example/pytorch:2.2.0",),
    image_dirs=(),
    build=None,
    sha256="0" * 64,
    arch="amd64",
    link="copy",
    offline=False,
)
HELP = Help(
    description="PyTorch, a machine learning package",
    homepage="https://pytorch.org",
    docurls=("https://pytorch.org/docs",),
    whatis=(),
    contents=(("torch", "2.2.0"), ("torchvision", "0.17.0")),
    origin="docker://registry.example/pytorch:2.2.0",
)
PLAN = Plan(
    module=ModuleName("PyTorch", "2.2.0-rocm-5.6.1"),
    version="2.2.0",
    easyconfig="PyTorch-2.2.0",
    prefix="/opt/sifmod",
    syntaxes=("lua", "tcl"),
    accelerator="rocm",
    gpu_flags=("rocm",),
    runtime=Runtime("apptainer", "/usr/bin/apptainer"),
    image=IMAGE,
    activation=Activation("source /opt/miniconda3/bin/activate pytorch", ""),
    binds=(Bind("/usr", "/usr/host"), Bind("/no/such/place", "/no/such/place", optional=True)),
    env=(("NCCL_DEBUG", "WARN"), ("PYTHONNOUSERSITE", "1")),
    host_env=(("MPICH_GPU_SUPPORT_ENABLED", "1"),),
    path=("/runscripts", "/opt/miniconda3/envs/pytorch/bin"),
    wrappers=(Wrapper("python", ("python",)), Wrapper("pip", ("pip",))),
    runscripts=("conda-python-simple", "conda-python-distributed", "get-master"),
    runscript_env=(),
    conflict=(),
    family=None,
    help=HELP,
    sanity_check=SanityCheck(),
)


def plan(**changes: Any) -> Plan:
    """The plan with these fields changed."""
    return replace(PLAN, **changes)


@dataclass(frozen=True)
class Published:
    """A generation on disk, as an installer leaves it: see docs/design.md, section 4."""

    plan: Plan
    root: Path

    @property
    def image(self) -> Path:
        return self.root / self.plan.required_image.filename

    @property
    def modules(self) -> Path:
        return Path(self.plan.prefix) / "modules"


def publish(plan: Plan, generation: int = 1, image: bool = True) -> Published:
    """Write everything that a plan renders to, with an empty image, and switch to it."""
    software = Path(plan.prefix) / "software" / plan.module.name
    root = software / ".generations" / plan.module.version / str(generation)
    for file in render(plan, generation):
        path = root / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")
        path.chmod(0o755 if file.executable else 0o644)
    if image:
        (root / plan.required_image.filename).write_bytes(b"")
    switch = software / plan.module.version
    switch.unlink(missing_ok=True)
    switch.symlink_to(root.relative_to(software))
    published = Published(plan, root)
    for file in render_stub(plan):
        path = published.modules / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")
    return published
