"""Run the job script of each style, as `sifmod jobscript` prints it, on a real Slurm cluster of two nodes.

python tests/fuzz/job_styles.py

The module has the demo's PyTorch image and a layer with Lightning, which comes from PyPI. Each job trains a step over
two nodes; then the same with --bcast.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support import module_tool as tools
from support.command import ROOT, SIFMOD, run
from support.images import Images
from support.jobs import STEP
from support.runtime import RUNTIME
from support.slurm import Slurm

LIGHTNING = """
import os, torch, lightning as L
from torch.utils.data import DataLoader, TensorDataset

class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def training_step(self, batch, _):
        return self.layer(batch[0]).square().mean()
    def on_train_batch_end(self, outputs, *_):
        trainer, where = self.trainer, os.environ["SLURMD_NODENAME"]
        image = os.environ["SINGULARITY_CONTAINER"]
        print(f"trained: rank {trainer.global_rank} of {trainer.world_size} on {where}, image {image}")
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

trainer = L.Trainer(
    num_nodes=int(os.environ["SLURM_NNODES"]), devices=int(os.environ["LOCAL_WORLD_SIZE"]), accelerator="cpu",
    max_steps=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Model(), DataLoader(TensorDataset(torch.ones(8, 8)), batch_size=2))
"""


def main() -> int:
    """Run; return the exit status."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="sifmod-jobs-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        directory.chmod(0o755)
        environment = _installed(directory)
        cluster = Slurm(directory / "cluster")
        try:
            cluster.start()
            for style in ("srun", "torchrun", "lightning"):
                for more in ((), ("--bcast",)):
                    failed += _runs(cluster, directory, environment, (style, *more))
        finally:
            cluster.stop()
    return int(failed > 0)


def _installed(directory: Path) -> dict[str, str]:
    """The environment of a login shell with Lmod, and a prefix with the module and its layer."""
    (directory / "home").mkdir()
    shell = tools.lmod(directory / "home")
    environment = {**os.environ, **shell.run("export -f module ml").environment, **RUNTIME.userns}
    environment |= {"SIFMOD_PREFIX": str(directory / "pre fix"), "OMP_NUM_THREADS": "1"}
    easyconfig = ROOT / "easyconfigs" / "PyTorch" / "PyTorch-2.13.0.yaml"
    source = ("--variant", "cpu", "--source", str(Images().pytorch_sif), "--link", "reference")
    run((*SIFMOD, "install", "-q", easyconfig, *source), env=environment).ok()
    run((*SIFMOD, "add", "PyTorch/2.13.0-cpu", "lightning"), env=environment).ok()
    return environment


def _runs(cluster: Slurm, directory: Path, environment: dict[str, str], words: tuple[str, ...]) -> bool:
    """Submit it and say what came of it; whether it failed."""
    work = directory / "-".join(words)
    work.mkdir()
    (work / "train.py").write_text(LIGHTNING if words[0] == "lightning" else STEP)
    fill = ("--account", "none", "--partition", "main", "-o", "job.sh")
    run((*SIFMOD, "jobscript", "PyTorch", "--style", *words, *fill), env=environment, cwd=work).ok()
    cluster.run(("sbatch", "--test-only", "job.sh"), environment, work).ok()
    begun = time.monotonic()
    code = cluster.wait(cluster.sbatch((f"--output={work}/output", "job.sh"), environment, work))
    output = (work / "output").read_text(errors="replace")
    trained = sorted(line for line in output.splitlines() if "trained: " in line)
    left = [str(path) for path in Path("/tmp").glob("sifmod-image-*")]
    print(f"{' '.join(words)}: exit code {code}, {time.monotonic() - begun:.1f} s, left in /tmp: {left}")
    print("\n".join(trained or [output]), flush=True)
    return code != 0 or len(trained) != 2 or any("/tmp/sifmod-image-" not in one for one in trained if words[1:])


if __name__ == "__main__":
    sys.exit(main())
