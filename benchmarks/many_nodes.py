"""Until Python has imported torch on N nodes at once: a simulation of servers with queues, the same at each run.

python benchmarks/many_nodes.py

What a node asks for was measured (benchmarks/start_reads.py); what servers and network give is assumed, in the names
below. Each node goes on when its last request was answered; a server answers in the order of arrival.
"""

import heapq
from dataclasses import dataclass

NODES = (1, 100, 1_000, 10_000)
RANKS = 8  # a node
# measured: of one process, and what each further one on the node asks again (opens)
DIRECTORY_ASKS, DIRECTORY_OPENS, DIRECTORY_BYTES = 2_512, 849, 277_000_000
IMAGE_ASKS, IMAGE_OPENS = 50, 10
SIF_BYTES, LAYER_BYTES = 189_900_000, 46_200_000
SIF_SIZE, LAYER_SIZE = 326_400_000, 10_900_000
START = 2.0  # seconds of processor that a node needs itself
STREAM = 100e6  # bytes/s that one daemon of Slurm takes, of one sender: two busy cores
# assumed
METADATA = 100_000  # requests/s of the metadata server
ROUND_TRIP = 0.0002  # seconds
SERVERS, RATE = 40, 5e9  # of data, and bytes/s of each
LINK = 12.5e9  # bytes/s of a node
WIDTH, BLOCK = 50, 8_000_000  # of Slurm's tree of daemons, and of sbcast: their defaults
STEP = 2.0  # seconds that `srun` takes for a step on all nodes
CHUNK, BATCH = 4_000_000, 200  # what is simulated as one: bytes, requests


@dataclass
class Server:
    """Serves one request after the other."""

    rate: float
    free: float = 0.0

    def serve(self, now: float, work: float) -> float:
        """When `work`, which arrives now, is done."""
        self.free = max(now, self.free) + work / self.rate
        return self.free


@dataclass(frozen=True)
class Way:
    """Where the packages are: what each node asks of the servers that all share."""

    name: str
    asks: int
    size: int  # bytes
    servers: int  # over which the bytes are spread
    copied: int = 0  # bytes that sbcast brings to each node first


WAYS = (
    Way("a directory of packages", DIRECTORY_ASKS + (RANKS - 1) * DIRECTORY_OPENS, DIRECTORY_BYTES, SERVERS),
    Way("SIF on one server", IMAGE_ASKS + (RANKS - 1) * IMAGE_OPENS, SIF_BYTES, 1),
    Way("SIF striped over all", IMAGE_ASKS + (RANKS - 1) * IMAGE_OPENS, SIF_BYTES, SERVERS),
    Way("SIF and layer, striped", IMAGE_ASKS + (RANKS - 1) * IMAGE_OPENS, SIF_BYTES + LAYER_BYTES, SERVERS),
    Way("`--bcast`, SIF and layer", 0, 0, 1, SIF_SIZE + LAYER_SIZE),
)


def shared(way: Way, nodes: int) -> float:
    """When the last node has all that it asks for: batches of requests and chunks of data in turn."""
    metadata, data = Server(METADATA), [Server(RATE) for _ in range(way.servers)]
    batches, chunks = -(-way.asks // BATCH), -(-way.size // CHUNK)
    asked, read = [way.asks // max(batches, 1)] * batches, [way.size / max(chunks, 1)] * chunks
    events = [(0.0, node, 0) for node in range(nodes)]
    last = 0.0
    while events:
        now, node, step = heapq.heappop(events)
        if step < len(asked):
            done = max(metadata.serve(now, asked[step]), now + asked[step] * ROUND_TRIP)
        elif step < len(asked) + len(read):
            size = read[step - len(asked)]
            done = max(data[(node + step) % way.servers].serve(now, size), now + size / LINK) + ROUND_TRIP
        else:
            last = max(last, now)
            continue
        heapq.heappush(events, (done, node, step + 1))
    return last


def broadcast(size: int, nodes: int) -> float:
    """How long sbcast takes: a block is on all nodes before the next one leaves."""
    return -(-size // BLOCK) * hop(nodes)


def hop(nodes: int) -> float:
    """From a sender to so many nodes below it, each of which passes a block on to its share of the others."""
    if nodes < 1:
        return 0.0
    children = min(WIDTH, nodes)
    below = -(-nodes // children) - 1
    return max(BLOCK / STREAM, children * BLOCK / LINK) + ROUND_TRIP + hop(below)


def main() -> None:
    """Print the table."""
    print(f"| what | requests, {NODES[-1]:,} nodes | bytes | {' | '.join(f'{n:,} nodes' for n in NODES)} |")
    print(f"|{'---|' * (3 + len(NODES))}")
    for way in WAYS:
        requests = way.asks * NODES[-1] or IMAGE_ASKS
        size = way.size * NODES[-1] or way.copied
        times = [START + shared(way, n) + (2 * STEP + broadcast(way.copied, n) if way.copied else 0) for n in NODES]
        seconds = " | ".join(f"{time:,.0f} s" for time in times)
        print(f"| {way.name} | {requests:,} | {size / 1e9:,.1f} GB | {seconds} |")


if __name__ == "__main__":
    main()
