#!/usr/bin/env python3
"""Every transport between two hosts, on good and bad networks, as root:
`trade_off.py build/release/bin/ranvier build/release/bin/lab_relay`

Claim: what each transport is worth depends on the network, and what a transport's name says of it (TCP is slow, UDP loses)
does not hold of all that can be built on it. Each condition is a network of its own, in which `ranvier bench
--compare-transports` takes turns between the transports, sample by sample; nothing is encrypted. Its help says what the
columns mean. The ranks are started by mpirun, without which MPI does not run between hosts; where that fails, as hosts
are without it.
"""

import argparse
import dataclasses
import json
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "support" / "lab"))

from lab import Lab, LabError, Relay, Run, reason_to_skip  # noqa: E402

LIMIT_S = 400
HOSTS = 2  # that are measured; the others of a network send them what competes

# On all hosts of a network, for ever: to each host that is measured, a stream of TCP from a host of its own. What is sent
# again of those counts on hosts that nobody measures.
FLOWS = f"""
import os, socket, time
rank, addresses = int(os.environ["RANVIER_RANK"]), os.environ["LAB_ADDRESSES"].split(",")
if rank < {HOSTS}:
    server = socket.create_server((addresses[rank], 7004))
    print("ready", flush=True)
    source, _ = server.accept()
    while source.recv(1 << 20):
        pass
else:
    for _ in range(500):
        try:
            to = socket.create_connection((addresses[rank - {HOSTS}], 7004), timeout=10)
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
    print("ready", flush=True)
    while True:
        to.sendall(bytes(1 << 20))
"""

# Open MPI asks for a shell on another host, which here is a namespace: `AGENT ADDRESS COMMAND…`.
AGENT = """#!/bin/sh
host=$((${1##*.} - 1))
shift
exec ip netns exec NAME-host$host sh -c "$*"
"""


@dataclasses.dataclass(frozen=True)
class Condition:
    name: str
    rate: str | None = None
    loss: float = 0
    delay_ms: float = 0
    corrupt: float = 0
    queue_ms: float = 50
    flows: bool = False
    large: str = "4M"
    samples: int = 5
    checks: int = 5
    latencies: int = 400

    def network(self, arguments: argparse.Namespace) -> Lab:
        if self.delay_ms or self.corrupt or self.flows:
            relay = Relay(arguments.relay, rate=self.rate, loss=self.loss, delay_ms=self.delay_ms, corrupt=self.corrupt,
                          queue_ms=self.queue_ms)  # fmt: skip
            return Lab(2 * HOSTS if self.flows else HOSTS, relay=relay, congestion_control=arguments.control)
        return Lab(HOSTS, rate=self.rate, loss=self.loss, congestion_control=arguments.control)

    def sizes(self, small: str) -> list:
        return ["-b", small, "-e", self.large, "--samples", self.samples, "-n", 1, "-c", self.checks, "--latency-samples", self.latencies]


CONDITIONS = {
    "clean": Condition("clean, unshaped", large="16M"),
    "1gbit": Condition("1 Gbit/s", "1Gbit"),
    "100mbit": Condition("100 Mbit/s", "100Mbit", latencies=200),
    "little": Condition("1 Gbit/s, 0.1 % loss", "1Gbit", loss=0.001),
    "loss": Condition("1 Gbit/s, 1 % loss", "1Gbit", loss=0.01),
    "far": Condition("200 Mbit/s, 20 ms each way, 1 % loss", "200Mbit", loss=0.01, delay_ms=20, large="512K", samples=3, checks=2, latencies=20),
    "damage": Condition("200 Mbit/s, 0.1 % of packets damaged", "200Mbit", corrupt=0.001, latencies=100),
    "flow": Condition("100 Mbit/s, a TCP stream beside", "100Mbit", queue_ms=10, flows=True, samples=3, checks=2, latencies=40),
}
COLUMNS = {
    "transport": ("transport", "{}", 1),
    "Mbit/s": ("algbw_gbps", "{:.0f}", 8000),
    "median, ms": ("latency_us", "{:.2f}", 1e-3),
    "p99, ms": ("latency_p99_us", "{:.2f}", 1e-3),
    "late, %": ("late_share", "{:.1f}", 100),
    "CPU, s/GB": ("cpu_seconds_per_gb", "{:.2f}", 1),
    "lost packets, %": ("packets_lost_share", "{:.2f}", 100),
    "damaged": ("packets_refused", "{:.0f}", 1),
    "missing, %": ("lost_share", "{:.2f}", 100),
    "error": ("relative_error", "{:.2g}", 1),
    "wrong": ("wrong", "{}", 1),
}


def bench(arguments: argparse.Namespace, condition: Condition, file: pathlib.Path | str) -> list:
    return [arguments.ranvier, "bench", "--compare-transports", "--insecure", "--no-pin", "--algorithm", "ring",
            *condition.sizes(arguments.small), "--json", file]  # fmt: skip


def start(lab: Lab, words: list, by_mpirun: bool) -> Run:
    # UCX would find memory that the hosts share.
    environment = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
    if not by_mpirun:
        return lab.start(words, hosts=HOSTS, environment=environment)
    agent = lab.network.folder / "agent"
    agent.write_text(AGENT.replace("NAME", lab.network.name))
    agent.chmod(0o700)
    settings = {"plm_rsh_agent": agent, "pml": "ob1", "btl": "tcp,self", "btl_tcp_if_include": "eth0", "oob_tcp_if_include": "eth0"}
    mpirun = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-n", HOSTS, "--host", ",".join(lab.addresses[:HOSTS])]
    mpirun += [word for name, value in settings.items() for word in ("--mca", name, value)]
    mpirun += [word for name in (*environment, "RANVIER_STORE") for word in ("-x", name)]
    return lab.start([*mpirun, "env", "-u", "RANVIER_RANK", "-u", "RANVIER_WORLD", *words], hosts=1, environment=environment)


def measure(arguments: argparse.Namespace, condition: Condition) -> dict:
    with condition.network(arguments) as lab:
        if condition.flows and not lab.start([sys.executable, "-c", FLOWS]).wait_for_words("ready", 30):
            raise LabError("the streams that compete did not begin within 30 s")
        file = lab.network.folder / "compared.json"
        said = []
        for by_mpirun in (True, False) if shutil.which("mpirun") else (False,):
            results = start(lab, bench(arguments, condition, file), by_mpirun).wait(LIMIT_S)
            if all(result.code == 0 for result in results):
                return {"condition": condition.name, **json.loads(file.read_text())}
            said += [f"{result.err.strip()} (ended after {LIMIT_S} s)" if result.timed_out else result.err.strip() for result in results]
    raise LabError(f"{condition.name}: {' / '.join(said)}")


def measure_one_host(arguments: argparse.Namespace) -> dict:
    """Processes of this machine, for transports that share memory."""
    condition = dataclasses.replace(CONDITIONS["clean"], name="one host")
    words = [*bench(arguments, condition, "-"), "--ranks", HOSTS]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        raise LabError(f"one host: {done.stderr.strip()}")
    return {"condition": condition.name, **json.loads(done.stdout[done.stdout.index("{") :])}


def cell(row: dict, column: str) -> str:
    key, form, times = COLUMNS[column]
    value = row[key]
    if value is None:
        return "-"
    return form.format(value * times if times != 1 else value)


def rows(found: dict) -> str:
    """The lines of one condition in the table, as Markdown."""
    names = [found["condition"]] + [""] * len(found["rows"])
    return "\n".join(f"| {' | '.join([name, *(cell(row, column) for column in COLUMNS)])} |" for name, row in zip(names, found["rows"]))


def main() -> int:
    parser = argparse.ArgumentParser(prog="trade_off.py", description=__doc__.partition("\n\n")[0])
    parser.add_argument("ranvier", type=pathlib.Path, help="the program")
    parser.add_argument("relay", type=pathlib.Path, help="lab_relay, which is built beside the tests")
    names = ["host", *CONDITIONS]
    parser.add_argument("--conditions", nargs="*", default=names, choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--control", default="cubic", help="TCP's congestion control (default: cubic)")
    parser.add_argument("--small", default="64K", metavar="SIZE", help="of the vector that latency is of (default: 64K)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the results there")
    arguments = parser.parse_args()
    arguments.ranvier, arguments.relay = arguments.ranvier.resolve(), arguments.relay.resolve()
    if reason := reason_to_skip():
        print(f"trade_off.py: {reason}", file=sys.stderr)
        return 1
    found = []
    print(f"| {' | '.join(['condition', *COLUMNS])} |\n|{' --- |' * (1 + len(COLUMNS))}", flush=True)
    try:
        for name in arguments.conditions:
            began = time.monotonic()
            found.append(measure_one_host(arguments) if name == "host" else measure(arguments, CONDITIONS[name]))
            found[-1]["seconds"] = time.monotonic() - began
            print(rows(found[-1]), flush=True)
            for transport, why in found[-1]["absent"].items():
                print(f"{found[-1]['condition']}: {transport} is absent: {why}", file=sys.stderr)
    except LabError as problem:
        print(f"trade_off.py: {problem}", file=sys.stderr)
        return 1
    finally:
        if arguments.json:
            arguments.json.write_text(json.dumps({"conditions": found}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
