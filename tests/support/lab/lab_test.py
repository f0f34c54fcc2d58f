"""The laboratory itself: its hosts reach one another, at the rate and with the loss asked for, and leave nothing."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

import network
from lab import Lab, LabError, reason_to_skip
from program import wait_until

HERE = pathlib.Path(__file__).parent
SKIPPED = 77  # as CMake knows it

UDP_PACKETS = 5000
# Host 1 counts what host 0 sends; TCP would hide a loss. The packets are too few to overflow what the receiver holds.
UDP = f"""
import os, socket, time, pathlib
rank, store = int(os.environ["RANVIER_RANK"]), pathlib.Path(os.environ["RANVIER_STORE"])
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if rank == 1:
    own.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
    own.bind((os.environ["LAB_ADDRESS"], 7002))
    own.settimeout(30)  # until its sender has begun
    (store / "ready").touch()
    count, is_over = 0, False
    while not is_over:
        is_over = (store / "sent").exists()  # what comes later than that and a pause has been lost
        try:
            while own.recv(1000):
                own.settimeout(0.5)
                count += 1
        except TimeoutError:
            is_over = is_over or count == 0
    print(count)
else:
    while not (store / "ready").exists():
        time.sleep(0.01)
    to = os.environ["LAB_ADDRESSES"].split(",")[1], 7002
    for i in range({UDP_PACKETS}):
        own.sendto(bytes(100), to)
        if i % 100 == 0:
            time.sleep(0.001)
    (store / "sent").touch()
"""

# Each host answers with its rank on TCP and asks all the others.
GREET = """
import os, socket, threading
rank, addresses = int(os.environ["RANVIER_RANK"]), os.environ["LAB_ADDRESSES"].split(",")
server = socket.create_server((os.environ["LAB_ADDRESS"], 7003))
def answer():
    for _ in addresses:
        with server.accept()[0] as asker:
            asker.sendall(str(rank).encode())
answering = threading.Thread(target=answer)
answering.start()
def ask(address):
    for _ in range(500):
        try:
            with socket.create_connection((address, 7003), timeout=10) as server:
                return server.recv(10).decode()
        except ConnectionRefusedError:
            threading.Event().wait(0.01)
print(*map(ask, addresses))
answering.join(10)
"""


def own_network() -> list[str]:
    """All that the machine itself has of a network."""
    questions = ("ip -j address", "ip -j route show table all", "tc -j qdisc", "nft -j list ruleset")
    return [network.command(*question.split()) for question in questions]


def left_of(name: str) -> list:
    """What there still is of a lab."""
    folder = network.folder_of(name)
    return [*network.namespaces_of(name), *network.processes_of(name), *([folder] if folder.exists() else [])]


class Hosts(unittest.TestCase):
    def setUp(self):
        self.before = own_network()

    def tearDown(self):
        self.assertEqual(own_network(), self.before)

    def succeed(self, results: list) -> list[str]:
        for result in results:
            self.assertEqual((result.code, result.timed_out), (0, False), result)
        return [result.out.strip() for result in results]

    def test_each_reaches_each(self):
        with Lab(hosts=5) as lab:
            self.assertEqual(own_network(), self.before)
            self.assertEqual(self.succeed(lab.run([sys.executable, "-c", GREET], limit=30)), ["0 1 2 3 4"] * 5)

    def test_a_command_finds_its_place_and_runs_on_as_many_hosts_as_asked(self):
        with Lab(hosts=3) as lab:
            script = "echo $RANVIER_RANK/$RANVIER_WORLD $LAB_ADDRESS $LAB_ADDRESSES $MORE; test -d $RANVIER_STORE"
            for hosts, addresses in ((2, "10.77.0.1,10.77.0.2"), (None, "10.77.0.1,10.77.0.2,10.77.0.3")):
                said = self.succeed(lab.run(["sh", "-c", script], limit=10, hosts=hosts, environment={"MORE": "more"}))
                world = hosts or 3
                self.assertEqual(said, [f"{i}/{world} 10.77.0.{i + 1} {addresses} more" for i in range(world)])

    def test_output_and_exit_code_are_told_by_host(self):
        with Lab(hosts=2) as lab:
            script = "echo out$RANVIER_RANK; echo err$RANVIER_RANK >&2; exit $RANVIER_RANK"
            first, second = lab.run(["sh", "-c", script])
            self.assertEqual((first.host, first.code, first.out, first.err), (0, 0, "out0\n", "err0\n"))
            self.assertEqual((second.host, second.code, second.out, second.err), (1, 1, "out1\n", "err1\n"))

    def test_what_runs_too_long_is_ended_with_what_it_started(self):
        with Lab(hosts=2) as lab:
            # Host 1 heeds no SIGTERM.
            words = ["sh", "-c", "[ $RANVIER_RANK = 0 ] || trap '' TERM; sleep 1000 & sleep 1000; sleep 1000"]
            began = time.monotonic()
            results = lab.run(words, limit=3)  # by then it has said so, and sleeps
            self.assertLess(time.monotonic() - began, 30)
            self.assertEqual([result.timed_out for result in results], [True, True])
            self.assertEqual([result.code for result in results], [-signal.SIGTERM, -signal.SIGKILL])
            self.assertTrue(wait_until(lambda: not network.processes_of(lab.network.name), 5))

    def test_a_link_and_a_flow_carry_their_rate_both_ways_and_no_more(self):
        for rate, flow_rate in (("50Mbit", None), ("400Mbit", None), ("400Mbit", "50Mbit")):
            with self.subTest(rate=rate, flow=flow_rate), Lab(hosts=3, rate=rate, flow_rate=flow_rate) as lab:
                line = network.bits_per_second(flow_rate or rate) / 8
                for said in self.succeed(lab.run([sys.executable, HERE / "streams.py", "1"], limit=30)):
                    share = json.loads(said)["bytes_per_second"] / line
                    # Headers take 4 %; a bucket that was full adds a little, and what a receiver that was kept from its core finds
                    # in his buffer; a busy machine may carry less. Another line of these would be an eighth, or eight times it.
                    self.assertGreater(share, 0.2)
                    self.assertLess(share, 1.3)

    def test_host_0_may_have_a_slower_link(self):
        with Lab(hosts=2, rate="80Mbit", slow_host="8Mbit") as lab:
            script = "tc -j qdisc show dev eth0"
            rates = [json.loads(said)[0]["options"]["rate"] for said in self.succeed(lab.run(["sh", "-c", script], limit=10))]
            self.assertEqual([8 * rate for rate in rates], [8e6, 80e6])

    def test_each_host_may_have_a_rate_of_its_own(self):
        with Lab(hosts=2, rate="80Mbit,8Mbit") as lab:
            script = "tc -j qdisc show dev eth0"
            rates = [json.loads(said)[0]["options"]["rate"] for said in self.succeed(lab.run(["sh", "-c", script], limit=10))]
            self.assertEqual([8 * rate for rate in rates], [80e6, 8e6])
        with self.assertRaisesRegex(LabError, "2 rates are not those of 3 hosts"):
            Lab(hosts=3, rate="80Mbit,8Mbit")

    def test_the_loss_is_what_was_asked_for(self):
        for loss in (0.1, 0.0):
            with self.subTest(loss=loss), Lab(hosts=2, loss=loss) as lab:
                _, received = self.succeed(lab.run([sys.executable, "-c", UDP], limit=30))
                # Five standard deviations of so many packets.
                self.assertAlmostEqual(1 - int(received) / UDP_PACKETS, loss, delta=0.022 if loss else 0)
                if loss:
                    seen, lost = lab.network.packets()
                    self.assertEqual((seen, seen - lost), (UDP_PACKETS, int(received)))

    def test_a_cut_link_carries_nothing_until_it_is_mended(self):
        ask = "import socket; socket.create_connection(('10.77.0.2', 9), timeout=1)"
        with Lab(hosts=2) as lab:
            for change, problem in (
                (None, "ConnectionRefusedError"),
                (lab.cut, "TimeoutError"),
                (lab.mend, "ConnectionRefusedError"),
            ):
                if change:
                    change(1)
                (result,) = lab.run([sys.executable, "-c", ask], limit=30, hosts=1)
                self.assertIn(problem, result.err)

    def test_what_is_impossible_is_refused_in_a_sentence_and_leaves_nothing(self):
        for words, part in (
            ({"hosts": 0}, "choose 1 to 200"),
            ({"hosts": 2, "rate": "fast"}, "write 1Gbit or 100Mbit"),
            ({"hosts": 2, "rate": "0Mbit"}, "write 1Gbit or 100Mbit"),
            ({"hosts": 2, "loss": 1.0}, "from 0 to below 1"),
            ({"hosts": 2, "congestion_control": "nonesuch"}, "nonesuch"),
        ):
            with self.subTest(words=words), self.assertRaisesRegex(LabError, part):
                Lab(**words)
        self.assertEqual(network.namespaces_of(f"ranvier-lab-{os.getpid()}"), [])


class Ends(unittest.TestCase):
    """However a lab ends, nothing is left of it."""

    def start(self) -> tuple[subprocess.Popen, str]:
        """A lab of three hosts that would run for long, and its name."""
        words = [sys.executable, HERE / "lab.py", "--hosts", "3", "--rate", "1Gbit", "--loss", "0.01", "--"]
        # A host's command may well detach what it starts.
        words += ["sh", "-c", "setsid sleep 1000 & echo $LAB_NAME; sleep 1000"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        name = process.stdout.readline().split()[-1]
        self.assertTrue(wait_until(lambda: len(self.sleepers(name)) == 6, 10))
        self.assertEqual(len(network.namespaces_of(name)), 4)
        return process, name

    @staticmethod
    def sleepers(name: str) -> list[int]:
        found = []
        for pid in network.processes_of(name):
            try:
                found += [pid] if pathlib.Path(f"/proc/{pid}/comm").read_text() == "sleep\n" else []
            except OSError:  # it has just ended
                continue
        return found

    @staticmethod
    def keeper(name: str) -> int:
        for entry in pathlib.Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            except OSError:  # it has just ended
                continue
            if name.encode() in words and any(word.endswith(b"keeper.py") for word in words):
                return int(entry.name)
        raise AssertionError("no keeper")

    def test_by_a_signal_that_it_hears(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=number.name):
                process, name = self.start()
                process.send_signal(number)
                self.assertEqual(process.wait(30), 128 + number)
                self.assertEqual(left_of(name), [])

    def test_by_one_that_it_does_not(self):
        process, name = self.start()
        process.kill()
        self.assertTrue(wait_until(lambda: not left_of(name), 30), left_of(name))

    def test_by_one_that_comes_while_it_is_made(self):
        begins = []
        for moment in range(10):
            words = [sys.executable, HERE / "lab.py", "--hosts", "4", "--rate", "1Gbit", "--loss", "0.01"]
            process = subprocess.Popen([*words, "--", "sleep", "1000"], stdout=subprocess.DEVNULL)
            begins.append(f"ranvier-lab-{process.pid}-")
            time.sleep(0.04 * moment)
            process.kill()
            process.wait(30)

        def left() -> list[str]:
            names = (*os.listdir(network.NAMESPACES), *os.listdir(network.folder_of(".")))
            return [name for name in names if any(name.startswith(begin) for begin in begins)]

        self.assertTrue(wait_until(lambda: not left(), 30), left())

    def test_where_its_keeper_was_killed_too_the_next_lab_removes_it(self):
        process, name = self.start()
        os.kill(self.keeper(name), signal.SIGKILL)
        process.kill()
        process.wait(30)
        self.assertEqual(len(network.namespaces_of(name)), 4)
        with Lab(hosts=1) as lab:
            self.assertEqual(left_of(name), [])
            self.assertEqual(len(network.namespaces_of(lab.network.name)), 2)

    def test_by_an_exception(self):
        with self.assertRaises(ZeroDivisionError), Lab(hosts=2) as lab:
            name = lab.network.name
            run = lab.start(["sleep", "1000"])
            self.assertTrue(run.running() and left_of(name))
            1 / 0
        self.assertEqual(left_of(name), [])

    def test_a_lab_leaves_others_alone(self):
        with Lab(hosts=1) as other:
            sleeping = other.start(["sleep", "1000"])
            with Lab(hosts=1) as lab:
                self.assertEqual([result.code for result in lab.run(["true"])], [0])
            self.assertEqual(sleeping.running(), [0])
            self.assertEqual(len(network.namespaces_of(other.network.name)), 2)

    def test_the_last_one_puts_back_what_the_kernel_queued(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        backlog, every = folder / "netdev_max_backlog", network._names_of_labs
        ours = {
            "BACKLOG": backlog,
            "BACKLOG_BEFORE": folder / "before",
            "_names_of_labs": lambda: [each for each in every() if f"-{os.getpid()}-" in each],  # other tests have labs, too
        }
        for before, meanwhile in (("1000\n", network.BACKLOG_PACKETS), ("50000\n", 50000)):
            backlog.write_text(before)
            with self.subTest(before=before), unittest.mock.patch.multiple(network, **ours):
                with Lab(hosts=1):
                    with Lab(hosts=1):
                        self.assertEqual(int(backlog.read_text()), meanwhile)
                    self.assertEqual(int(backlog.read_text()), meanwhile, "one is left")
                self.assertEqual(int(backlog.read_text()), int(before))
                self.assertEqual(list(folder.iterdir()), [backlog])


class CommandLine(unittest.TestCase):
    def lab(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, HERE / "lab.py", *words], capture_output=True, text=True, timeout=60)

    def test_passes_on_what_hosts_say_and_the_first_failure(self):
        result = self.lab("--hosts", "2", "--", "sh", "-c", "echo here; exit $((RANVIER_RANK * 3))")
        self.assertEqual((result.returncode, sorted(result.stdout.splitlines())), (3, ["0: here", "1: here"]))

    def test_says_who_was_too_slow(self):
        result = self.lab("--limit", "3", "--", "sh", "-c", "[ $RANVIER_RANK = 0 ] || sleep 1000")
        self.assertEqual((result.returncode, result.stderr), (1, "lab.py: host 1 had not ended after 3 s\n"))

    def test_refuses_in_one_sentence(self):
        result = self.lab("--rate", "fast", "--", "true")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "lab.py: 'fast' is not a rate; write 1Gbit or 100Mbit\n")


if __name__ == "__main__":
    if reason := reason_to_skip():
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    unittest.main()
