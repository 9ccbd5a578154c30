"""Read the log of NCCL or RCCL: which network it chose, and why not another.

Understands the lines of NCCL_DEBUG=INFO with the subsystems INIT, NET and ENV since NCCL 2.18 and RCCL 2.18.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from sifmod.result import Described

_LINE = re.compile(r"(?:(?P<host>\S+):\d+:\d+ )?(?:\[\d+\] )?.*?NCCL (?:INFO|WARN) (?P<text>.*)")
_VERSION = re.compile(r"\b([NR]CCL) version\s*:?\s*(\d+(?:\.\d+)+(?:\+[\w.]+)?)")  # RCCL prints it without a prefix too
_CHOSEN = re.compile(r"Using network (.+)")
_DEVICE = re.compile(r"\[\d+\]([^:\s]+):(?:\d+/(IB|RoCE)\b)?")
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([^\s,(]+)")
_PLUGIN = re.compile(r"(?:NET/OFI (?:Using|Initializing) (?=aws-ofi)|NET/Plugin ?: Loaded net plugin )(.+)")
_OVER_IB = re.compile(r"IB|NET/IB", re.IGNORECASE)
_OVER_TCP = ("tcp", "sockets", "udp", "net")  # libfabric's providers: the first part of `tcp;ofi_rxm`
_FABRICS = {"efa": "EFA", "cxi": "Slingshot"}
# why TCP was chosen: the log line, and where to look
_REASONS = (
    (r"NCCL_NET set by environment to Socket", "NCCL_NET=Socket selects TCP: unset it, or give the fabric's name"),
    (r"NCCL_IB_DISABLE set by environment to [1-9]", "NCCL_IB_DISABLE disables InfiniBand and RoCE: unset it"),
    (r"Failed to open libibverbs", "the image has no libibverbs: use one with rdma-core"),
    (r"NET/IB ?: No device found", "no InfiniBand or RoCE device was found: check /sys/class/infiniband"),
    (r"NET/OFI.*(No eligible providers|fi_getinfo\(\) call failed|Unable to find a protocol)",
     "libfabric finds no provider: check /dev/cxi* or /dev/infiniband, and the provider's library in the container"),
    (r"NET/OFI Selected [Pp]rovider is (tcp|sockets|udp|net)\b",
     "libfabric chose TCP: set FI_PROVIDER to another provider, which the libfabric in use must have"),
    (r"Error: network .* not found|Failed to initialize any NET plugin",
     "the network that NCCL_NET names was not found: its plugin is missing in the image or does not fit this NCCL"),
    (r"(?!PROFILER|TUNER|GIN).*(?:lib[nr]ccl-net\S*: cannot open|No plugin found|Could not find: .*lib[nr]ccl-net)",
     "no network plugin was found: it must be in the image or bound into it, and on LD_LIBRARY_PATH"),
)  # fmt: skip


@dataclass(frozen=True)
class Network:
    """The network of a collective between nodes, from the log of NCCL or RCCL."""

    library: Literal["NCCL", "RCCL", ""]  # "" where the log does not say
    version: str
    name: Annotated[str, Described("the network as the library calls it: IB, Socket, …")]  # "": none was chosen
    transport: Annotated[str, Described("InfiniBand, RoCE, EFA, Slingshot, TCP, …")]
    plugin: str  # the loaded plugin with its version, or ""
    devices: tuple[str, ...]
    gpu_direct: Annotated[bool | None, Described("GPU Direct RDMA; null if the log does not show it")]
    tcp_hosts: Annotated[tuple[str, ...], Described("hosts that chose TCP")]
    reasons: Annotated[tuple[str, ...], Described("possible reasons for TCP, and what to check")]

    @property
    def text(self) -> str:
        said = [f"{self.transport} ({self.name})" if self.name != self.transport else self.name]
        said += [", ".join(self.devices[:8])] if self.devices else []
        said += [f"{self.library} {self.version}".strip()] if self.library else []
        said += [f"plugin {self.plugin}"] if self.plugin else []
        if self.gpu_direct is not None:
            said.append(f"{'with' if self.gpu_direct else 'without'} GPU Direct RDMA")
        return "; ".join(said)


def read_log(lines: Sequence[str]) -> Network:
    """The network in a log; if the hosts chose different ones, one over TCP, or else the first."""
    found = [match for match in map(_LINE.match, lines) if match]
    texts = tuple(dict.fromkeys(match["text"].strip() for match in found))
    chosen = [(match["host"] or "", said[1].strip()) for match in found if (said := _CHOSEN.match(match["text"]))]
    provider = next((said[1] for said in map(_PROVIDER.match, texts) if said), "")
    plugins = dict.fromkeys(said[1] for said in map(_PLUGIN.match, texts) if said)
    over_tcp = [(host, name) for host, name in chosen if name == "Socket" or _is_tcp(name, provider)]
    name = (over_tcp or chosen or [("", "")])[0][1]
    kind = "NET/Socket : Using" if name == "Socket" else "NET/IB : Using"
    found_devices = [device for text in texts if text.startswith(kind) for device in _DEVICE.finditer(text)]
    links = {device[2] for device in found_devices} - {None}
    version = next((match for match in map(_VERSION.search, lines) if match), None)
    return Network(
        library=("RCCL" if version[1] == "RCCL" else "NCCL") if version else "",
        version=version[2] if version else "",
        name=name,
        transport=_transport(name, provider, "RoCE" if links == {"RoCE"} else "InfiniBand"),
        plugin="" if name in ("", "Socket", "IB") else ", ".join(plugins),
        devices=tuple(dict.fromkeys(device[1] for device in found_devices)) if _is_own(name) else (),
        gpu_direct=_gpu_direct(texts) if name and not over_tcp else None,
        tcp_hosts=tuple(dict.fromkeys(host for host, _ in over_tcp if host)),
        reasons=tuple(advice for said, advice in _REASONS if any(re.match(f".*?{said}", text) for text in texts)),
    )


def _is_own(name: str) -> bool:
    return name == "Socket" or _OVER_IB.match(name) is not None


def _is_tcp(name: str, provider: str) -> bool:
    return not _is_own(name) and provider.partition(";")[0] in _OVER_TCP


def _transport(name: str, provider: str, link: str) -> str:
    if name == "Socket" or _is_tcp(name, provider):
        return "TCP"
    if _is_own(name):
        return link
    return _FABRICS.get(provider, f"libfabric over {provider}" if provider else name)


def _gpu_direct(texts: Sequence[str]) -> bool | None:
    """GPU Direct as connections between nodes use it, else as devices support it, else as rings use it; else None."""
    if nets := [text for text in texts if " via NET/" in text]:
        return all("/GDRDMA" in text for text in nets)
    if said := [text for text in texts if "GPU Direct RDMA" in text and re.search(r"\b(?i:enabled|disabled)\b", text)]:
        return all(re.search(r"\b(?i:enabled)\b", text) for text in said)
    if any(re.search(r"nNodes (?!1\b)\d+", text) for text in texts):
        rings = [text for text in texts if text.startswith("Connected all rings") and " GDR " in text]
        return all(text.rstrip().endswith("GDR 1") for text in rings) if rings else None
    return None
