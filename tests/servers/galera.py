"""A Galera cluster: three nodes of MariaDB on one machine, each of which takes writes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.servers import clients
from tests.servers.accounts import give
from tests.servers.base import Options, Server, Unavailable
from tests.servers.mysql import MariaDB, installed
from tests.servers.process import free_port

NODES = 3
LIBRARIES = (
    "/usr/lib/galera/libgalera_smm.so",
    "/usr/lib*/galera*/libgalera_smm.so",
    "/usr/local/lib/galera/libgalera_smm.so",
)
# what a node runs to get the data of another, of the package mariadb-server
SCRIPTS = ("wsrep_sst_rsync", "wsrep_sst_common")
CACHE = Path(__file__).resolve().parents[2] / ".servers" / "galera"
NEEDED = ("rsync", "lsof")
SETTINGS = {
    "wsrep-on": "ON",
    "wsrep-cluster-name": "sqllocks",
    "wsrep-sst-method": "rsync",
    "binlog-format": "ROW",
    "default-storage-engine": "InnoDB",
    "innodb-autoinc-lock-mode": "2",
    "max-connections": "100",
    "innodb-buffer-pool-size": "32M",
}
WRITE_SETS = "gcache.size=16M;gcache.page_size=16M"


class Node(MariaDB):
    """One node; `stop`, `kill` and `start` take it out of the cluster and back in."""

    def __init__(self, program: Path, cluster: Galera, *, library: Path, scripts: Path, number: int) -> None:
        super().__init__(program, source=cluster.source, options=cluster.options)
        self.first_of_cluster = False
        self.peer_port = free_port()
        self._cluster = cluster
        self._library = library
        self._transfer_port = free_port()
        self._catch_up_port = free_port()
        self._has_data = number == 0
        self.programs = self.directory / "programs"
        self.programs.mkdir()
        for name in SCRIPTS:
            shutil.copy(scripts / name, self.programs / name)

    def _initialise(self) -> None:
        if self._has_data:
            super()._initialise()
        else:  # the others get theirs, system tables and all, from a node that runs
            self._data.mkdir()
            give(self.account, self._data)

    def _command(self) -> list[str | Path]:
        addresses = ",".join(f"127.0.0.1:{node.peer_port}" for node in self._cluster.nodes)
        provider = [
            f"base_port={self.peer_port}",
            f"gmcast.listen_addr=tcp://127.0.0.1:{self.peer_port}",
            f"ist.recv_addr=127.0.0.1:{self._catch_up_port}",
            WRITE_SETS,
        ]
        values = {
            **SETTINGS,
            "wsrep-provider": str(self._library),
            "wsrep-cluster-address": f"gcomm://{addresses}",
            "wsrep-node-address": f"127.0.0.1:{self.peer_port}",
            "wsrep-sst-receive-address": f"127.0.0.1:{self._transfer_port}",
            "wsrep-provider-options": ";".join(provider),
            **self.options.settings,
        }
        first = ["--wsrep-new-cluster"] if self.first_of_cluster else []
        return [*super()._command(), *(f"--{name}={value}" for name, value in values.items()), *first]

    def _ask(self) -> str:
        version = super()._ask()
        query = "SHOW GLOBAL STATUS LIKE 'wsrep_local_state_comment'"
        ((_, state),) = clients.execute(self.admin_url, query)
        if state != "Synced":
            raise clients.NotYet(f"the node is {state}")
        return version

    def _populate(self) -> None:
        self._first.unlink(missing_ok=True)

    def lead(self) -> None:
        """Let the next start make a new cluster out of this node's data."""
        self.first_of_cluster = True
        state = self._data / "grastate.dat"
        if state.exists():
            state.write_text(state.read_text().replace("safe_to_bootstrap: 0", "safe_to_bootstrap: 1"))


class Galera(Server):
    """The cluster; as a server it is its first node, and what is done to it is done to all nodes."""

    name = "galera"

    def __init__(self, program: Path, *, library: Path, scripts: Path, source: str, options: Options) -> None:
        self.source = source
        self.options = options
        self.nodes: list[Node] = []
        for number in range(NODES):
            self.nodes.append(Node(program, self, library=library, scripts=scripts, number=number))
        if self.nodes[0].runs_as_root:
            self.close()
            raise Unavailable(f"only root can reach {program}, and root cannot transfer data")

    def create(self) -> None:
        """Make the first node's data, and start all; leave nothing behind on failure."""
        try:
            self.nodes[0].lead()
            self._each_after_the_first(Node.create)
            self._check_size()
        except BaseException:
            self.close()
            raise
        self.version = self.nodes[0].version

    def _each_after_the_first(self, begin: Callable[[Node], None]) -> None:
        first, *others = self.nodes
        begin(first)
        first.first_of_cluster = False
        with ThreadPoolExecutor(len(others), thread_name_prefix="node") as pool:
            list(pool.map(begin, others))

    def _check_size(self) -> None:
        query = "SHOW GLOBAL STATUS LIKE 'wsrep_cluster_size'"
        for node in self.nodes:
            ((_, size),) = clients.execute(node.admin_url, query)
            if int(size) != len(self.nodes):
                raise Unavailable(f"a node sees {size} nodes\n{node.log_tail()}")

    @property
    def url(self) -> str:
        """Return the URL of the test database on the first node."""
        return self.nodes[0].url

    @property
    def urls(self) -> tuple[str, ...]:
        """Return the URL of the test database on each node."""
        return tuple(node.url for node in self.nodes)

    def start(self) -> None:
        """Start all nodes again, the first one's data being the truth."""
        self.nodes[0].lead()
        self._each_after_the_first(Node.start)

    def stop(self) -> None:
        """Shut all nodes down in order, the first one last."""
        for node in reversed(self.nodes):
            node.stop()

    def kill(self) -> None:
        """End all nodes at once."""
        for node in self.nodes:
            node.kill()

    def close(self) -> None:
        """End all nodes and remove their data."""
        for node in self.nodes:
            node.close()


def from_binaries(options: Options, source: str = "binaries") -> Galera:
    """Start a cluster of the MariaDB that is installed; raise Unavailable where a part is missing."""
    clients.need_client("mysql")
    program = installed("mariadb", ("mariadbd", "mysqld"))
    for name in NEEDED:
        if shutil.which(name) is None:
            raise Unavailable(f"no {name} on the path")
    cluster = Galera(program, library=library(), scripts=scripts(), source=source, options=options)
    cluster.create()
    return cluster


def library() -> Path:
    """Return the library that makes a MariaDB a node; raise Unavailable if there is none."""
    for place in LIBRARIES:
        for path in Path("/").glob(place[1:]):
            return path
    raise Unavailable("no libgalera_smm.so in the usual places")


def scripts() -> Path:
    """Return the directory of the scripts that transfer data; raise Unavailable if there is none."""
    if (CACHE / SCRIPTS[0]).exists():
        return CACHE
    found = shutil.which(SCRIPTS[0])
    if found is None:
        raise Unavailable(f"no {SCRIPTS[0]} on the path")
    return Path(found).parent
