"""ranvier on hosts of the laboratory: right results over a real network stack, and who is to blame when one is lost.

Called with the paths of ranvier and of the programs of endless.cc and relay.cc.
"""

import json
import os
import pathlib
import signal
import sys
import time
import unittest

from lab import Lab, Relay, Result, Run, reason_to_skip, several_on_each
from network import command
from replay import Recorder, Stranger

SKIPPED = 77  # as CMake knows it
RANVIER, ENDLESS, RELAY = (pathlib.Path(word).resolve() for word in sys.argv[1:4])

AVAILABLE = pathlib.Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
DEFAULT = AVAILABLE.with_name("tcp_congestion_control")

# Heartbeats stop at once and are missed after 3 s; a closed connection is seen in milliseconds. The rest is for a
# machine that is busy with other things.
SILENCE_BOUND_S = 3 + 5
DEATH_BOUND_S = 3
# Leaks are looked for in the unit tests; processes that are killed on purpose would be reported here.
CLEAN = {"ASAN_OPTIONS": "detect_leaks=0"}


class Results(unittest.TestCase):
    def bench(self, *words: str, transport: str = "tcp", **network) -> dict:
        with Lab(**network) as lab:
            file = lab.network.folder / "result.json"
            quick = ["--transport", transport, "--no-pin", "--samples", "2", "--iters", "2", "--json", file]
            for result in lab.run([RANVIER, "bench", *quick, *words], limit=100, environment=CLEAN):
                self.assertEqual((result.code, result.err), (0, ""), result)
            return json.loads(file.read_text())

    def test_are_right_between_hosts(self):
        for hosts, collective in ((2, "all_reduce"), (4, "all_reduce"), (3, "all_to_all")):
            with self.subTest(hosts=hosts, collective=collective):
                sizes = ("-b", "4", "-e", "4M", "-f", "64")
                found = self.bench(*sizes, "--collective", collective, hosts=hosts, rate="1Gbit")
                self.assertGreaterEqual(len(found["rows"]), 3)
                for row in found["rows"]:
                    self.assertEqual((row["ranks"], row["transport"], row["wrong"]), (hosts, "tcp", 0))

    def test_are_right_where_hosts_have_many_addresses(self):
        # Those that networks of containers give them come behind their own.
        adds = 'for i in $(seq 80); do ip address add 10.99.0.$i/32 dev eth0; done; exec "$@"'
        for transport in ("tcp", "udp"):
            with self.subTest(transport=transport), Lab(hosts=2, rate="1Gbit") as lab:
                words = [RANVIER, "bench", "--transport", transport, "-b", "4", "-e", "4", "--samples", "1"]
                for result in lab.run(["sh", "-c", adds, "sh", *words], limit=60, environment=CLEAN):
                    self.assertEqual((result.code, result.err), (0, ""), result)

    def test_auto_spares_the_line_that_ranks_of_a_host_share(self):
        # A ring crosses it with three quarters of the vector twice, a hierarchy with each half once.
        sent = {}
        with Lab(hosts=2, rate="200Mbit") as lab:
            for algorithm in ("auto", "ring"):
                before = lab.network.bytes_sent(0)
                words = [RANVIER, "bench", "--nodes", "2", "--no-pin", "--algorithm", algorithm, "-b", "2M", "-e", "2M"]
                words += ["--samples", "2", "--iters", "2", "-w", "0"]
                for result in lab.run(several_on_each(2, words), limit=100, environment=CLEAN):
                    self.assertEqual((result.code, result.err), (0, ""), result)
                sent[algorithm] = lab.network.bytes_sent(0) - before
        self.assertLess(sent["auto"], 0.8 * sent["ring"], sent)

    def test_many_that_send_to_each_other_do_not_overrun_a_slow_line(self):
        # In slices of 512 KiB each rank has a whole chunk for each other one on its way at once: 2 to 8 of a hundred packets
        # were dropped. Whole vectors at once, as far as sockets take them, cost a third of them.
        for algorithm, size in (("direct", 3 << 20), ("one_round", 512 << 10)):
            with self.subTest(algorithm):
                self.assertLess(min(self.shares_dropped(algorithm, size)), 0.005)

    def shares_dropped(self, algorithm: str, size: int) -> list[float]:
        """Of all packets; a machine that is busy otherwise drops many at times: one attempt of five has to do without."""
        shares: list[float] = []
        while len(shares) < 5 and min(shares, default=1) >= 0.005:
            with Lab(hosts=8, rate="100Mbit") as lab:
                words = [RANVIER, "bench", "--transport", "tcp", "--no-pin", "--algorithm", algorithm, "-b", size, "-e", size]
                for result in lab.run([*words, "--samples", "2", "--iters", "2"], limit=100, environment=CLEAN):
                    self.assertEqual((result.code, result.err), (0, ""), result)
                shares.append(lab.network.dropped() / (sum(map(lab.network.bytes_sent, range(8))) / 1500))
        return shares

    def test_are_right_where_packets_are_lost(self):
        found = self.bench("-b", "64K", "-e", "1M", "-f", "16", hosts=3, rate="200Mbit", loss=0.01)
        self.assertEqual([row["wrong"] for row in found["rows"]], [0, 0])

    def test_of_sealed_udp_are_right_where_packets_are_lost_late_and_repeated(self):
        bad = Relay(RELAY, rate="200Mbit", delay_ms=1, jitter_ms=0.2, loss=0.05, reorder=0.05, duplicate=0.02)
        found = self.bench("-b", "64K", "-e", "1M", "-f", "16", transport="udp", hosts=3, relay=bad)
        self.assertEqual([(row["transport"], row["wrong"]) for row in found["rows"]], [("udp", 0)] * 2)

    def test_over_udp_is_refused_what_takes_small_packets_only(self):
        narrow = 'test "$RANVIER_RANK" = 0 || ip link set eth0 mtu 1000; exec "$@"'
        with Lab(hosts=2) as lab:
            words = [RANVIER, "bench", "--transport", "udp", "--no-pin", "-b", "64K", "-e", "64K", "--samples", "1"]
            results = lab.run(["sh", "-c", narrow, "narrow", *words], limit=100, environment=CLEAN)
        for result in results:
            self.assertEqual((result.code, result.timed_out), (1, False), result)
        self.assertIn("packets of 1228 bytes do not get there and back: a link on the way has an MTU of 1000", results[1].err)

    def test_over_small_packets_are_right_or_refused_with_one_sentence(self):
        # 576 is what every host has to take of IPv4 (RFC 791), 1280 every link of IPv6 (RFC 8200).
        small = 'ip link set eth0 mtu "$0"; exec "$@"'
        for mtu, transport, *insecure in (
            (576, "tcp"), (576, "grpc", "--insecure"), (576, "udp"),
            (1280, "tcp"), (1280, "udp"), (1280, "udp", "--insecure"), (1280, "udp:loss=0.01"),
        ):  # fmt: skip
            with self.subTest(mtu=mtu, transport=transport, insecure=insecure), Lab(hosts=2) as lab:
                file = lab.network.folder / "result.json"
                words = [RANVIER, "bench", "--transport", transport, *insecure, "--no-pin", "--json", file,
                         "-b", "64K", "-e", "1M", "-f", "16", "--samples", "2", "--iters", "2"]  # fmt: skip
                results = lab.run(["sh", "-c", small, mtu, *words], limit=100, environment=CLEAN)
                if transport == "udp" and mtu == 576:
                    for result in results:
                        self.assertEqual((result.code, result.timed_out), (1, False), result)
                        self.assertEqual(len(result.err.strip().splitlines()), 1, result)
                    remedy = "give all of them an MTU of 1228 or more, or use transport tcp"
                    told = f"a link on the way has an MTU of 576; {remedy}"
                    self.assertIn(told, results[1].err)
                    continue
                for result in results:
                    self.assertEqual((result.code, result.err), (0, ""), result)
                self.assertEqual([row["wrong"] for row in json.loads(file.read_text())["rows"]], [0, 0])

    def test_several_sockets_get_past_a_limit_of_each_flow(self):
        # 2 MB at 40 Mbit/s take 400 ms each way; four such flows are still far below the line.
        size = ("-b", "2000000", "-e", "2000000")
        network = {"hosts": 2, "rate": "1Gbit", "flow_rate": "40Mbit"}
        one, four = (self.bench(*size, "--sockets", count, **network)["rows"][0] for count in ("1", "4"))
        self.assertEqual((one["wrong"], four["wrong"]), (0, 0))
        self.assertGreater(one["time_us"], 300_000)
        self.assertLess(four["time_us"], one["time_us"] / 2)

    def test_the_bytes_go_through_the_shaped_links(self):
        # Were any to go another way, 4 MB would not need their 160 ms of a link of 200 Mbit/s.
        found = self.bench("-b", "4000000", "-e", "4000000", hosts=2, rate="200Mbit")
        self.assertGreater(found["rows"][0]["time_us"], 140_000)


class Probing(unittest.TestCase):
    def links(self, transport: str, **network) -> tuple[str, list]:
        with Lab(hosts=2, **network) as lab:
            file = lab.network.folder / "probed.json"
            words = ["--transport", transport, "--samples", "3", "--bytes", "1M", "--json", file]
            for result in lab.run([RANVIER, "probe", *words], limit=100, environment=CLEAN):
                self.assertEqual((result.code, result.err), (0, ""), result)
            found = json.loads(file.read_text())
        return found["loss_by"], found["links"]

    def test_finds_the_loss_of_each_link(self):
        # More than that are lost where a burst overruns the queue of the shaped link, as on a busy machine, and some go
        # again without need; and where a network may lose several in a row, one acknowledgement.
        bad = {"tcp": {"rate": "200Mbit", "loss": 0.02}, "udp": {"relay": Relay(RELAY, rate="200Mbit", loss=0.02)}}
        for transport, network in bad.items():
            with self.subTest(transport=transport):
                by, links = self.links(transport, **network)
                self.assertIn(transport, by)
                self.assertEqual(len(links), 2)
                for link in links:
                    self.assertGreater(link["packets"], 1000)
                    self.assertTrue(0.01 < link["loss"] < 0.12, link)
                    self.assertTrue(0 < link["loss_least"] < link["loss"] < link["loss_most"] < 0.14, link)

    def test_finds_none_where_there_is_none(self):
        for link in self.links("tcp", rate="200Mbit")[1]:
            self.assertLess(link["loss_least"], 0.005, link)


class Comparison(unittest.TestCase):
    """Of transports: what gets lost and damaged on the way is told, and never shows in results but where it may."""

    def compare(self, relay: Relay) -> dict:
        with Lab(hosts=2, relay=relay) as lab:
            file = lab.network.folder / "compared.json"
            words = ["--compare-transports", "--insecure", "--no-pin", "-b", "64K", "-e", "512K", "--samples", "2", "-n", "1",
                     "--latency-samples", "20", "-c", "4", "--json", file]  # fmt: skip
            environment = CLEAN | {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
            for result in lab.run([RANVIER, "bench", *words], limit=100, environment=environment):
                self.assertEqual(result.code, 0, result)
            found = json.loads(file.read_text())
        self.assertIn("share a host", found["absent"]["shm"])
        rows = {row["transport"]: row for row in found["rows"]}
        self.assertLessEqual({"tcp", "udp", "udp:loss=0.01"}, rows.keys())
        self.assertEqual({row["wrong"] for row in rows.values()}, {0})
        return rows

    def test_tells_what_is_lost_and_what_that_costs_a_sum(self):
        rows = self.compare(Relay(RELAY, rate="200Mbit", loss=0.03))
        for name in ("tcp", "udp", "udp:loss=0.01"):
            self.assertGreater(rows[name]["packets_lost_share"], 0.01, name)
        for name in ("tcp", "udp"):
            self.assertEqual((rows[name]["lost_share"], rows[name]["relative_error"]), (0, 0), name)
        self.assertGreater(rows["udp:loss=0.01"]["lost_share"], 0)
        self.assertTrue(0 < rows["udp:loss=0.01"]["relative_error"] < 0.5, rows["udp:loss=0.01"])

    def test_tells_what_was_damaged(self):
        rows = self.compare(Relay(RELAY, rate="200Mbit", corrupt=0.02))
        for name in ("tcp", "udp"):
            self.assertGreater(rows[name]["packets_refused"], 0, name)
            self.assertEqual(rows[name]["relative_error"], 0, name)


def certificates(folder: pathlib.Path) -> dict[str, str]:
    """Where ranks find them."""
    key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    script = f"""set -e; cd {folder}
        openssl req -x509 {key} -days 2 -subj /CN=job -keyout authority.key -out authority.pem
        openssl req {key} -subj /CN=ranvier -keyout rank.key -out rank.csr
        echo subjectAltName=DNS:ranvier > extensions
        openssl x509 -req -days 2 -in rank.csr -CA authority.pem -CAkey authority.key -CAcreateserial \\
          -extfile extensions -out rank.pem"""
    command("sh", "-c", script)
    files = {"CERTIFICATE": "rank.pem", "PRIVATE_KEY": "rank.key", "AUTHORITY": "authority.pem"}
    return {f"RANVIER_{name}": str(folder / file) for name, file in files.items()}


class Forgeries(unittest.TestCase):
    """Of bytes whose checksums are right, which only encryption tells from what was sent."""

    def test_of_datagrams_change_nothing(self):
        with Lab(hosts=2, relay=Relay(RELAY, rate="200Mbit", forge_udp=0.02)) as lab:
            file = lab.network.folder / "forged.json"
            words = ["--transport", "udp", "--no-pin", "-b", "64K", "-e", "1M", "--samples", "3", "-n", "1", "--json", file]
            for result in lab.run([RANVIER, "bench", *words], limit=100, environment=CLEAN):
                self.assertEqual(result.code, 0, result)
            found = json.loads(file.read_text())
        self.assertEqual({row["wrong"] for row in found["rows"]}, {0})

    def test_of_connections_end_the_job_at_once_and_are_named(self):
        # Far less than an operation's timeout. Over grpc records end in the middle of values.
        for transport in ("tcp", "grpc"):
            for number in range(500, 1500, 200):
                relay = Relay(RELAY, forge_segment=number, seed=number)
                with self.subTest(transport=transport, number=number), Lab(hosts=2, relay=relay) as lab:
                    words = ["--transport", transport, "--no-pin", "--no-measure", "-b", "64K", "-e", "1M", "-f", "16"]
                    words += ["--samples", "10000", "--iters", "1"]
                    environment = CLEAN | (certificates(lab.network.folder) if transport == "grpc" else {})
                    self.assert_named(lab.run([RANVIER, "bench", *words], limit=30, environment=environment))

    def assert_named(self, results: list[Result]) -> None:
        for result in results:
            self.assertFalse(result.timed_out, result)
            self.assertEqual(result.code, 1, result)
        self.assertTrue(any("a record was forged, changed" in result.err for result in results), results)


class Connections(unittest.TestCase):
    def test_go_by_the_interface_that_is_named(self):
        adds = 'ip link add eth9 type veth peer name eth8; ip address add 10.99.0.1/32 dev eth9; ip link set eth9 up; exec "$@"'
        for transport in ("tcp", "udp", "ucx"):
            with self.subTest(transport=transport), Lab(hosts=2, rate="1Gbit") as lab:
                words = [RANVIER, "bench", "--transport", transport, "--interface", "eth0", "-b", "4", "-e", "4"]
                words += ["--samples", "1"] + ["--insecure"] * (transport == "ucx")
                for result in lab.run(["sh", "-c", adds, "sh", *words], limit=60, environment=CLEAN):
                    self.assertEqual((result.code, result.err), (0, ""), result)

    def test_that_one_way_is_closed_to_are_no_strangers(self):
        closes = 'if [ "$RANVIER_RANK" = 0 ]; then nft "add table inet q; add chain inet q i { type filter hook input priority 0; };'
        closes += ' add rule inet q i iif eth0 tcp flags & (syn|ack) == syn drop"; fi; exec "$@"'
        with Lab(hosts=2, rate="1Gbit") as lab:
            words = [RANVIER, "bench", "-b", "4", "-e", "4", "--samples", "1", "--join-timeout", "6"]
            waited, dialled = lab.run(["sh", "-c", closes, "sh", *words], limit=60, environment=CLEAN)
            self.assertIn("rank 1 (it did not connect, but listens)", waited.err)
            self.assertIn("no answer", dialled.err)
            for result in (waited, dialled):
                self.assertEqual(result.code, 1)
                self.assertIn("no firewall stands between", result.err)
                self.assertNotIn("another key", result.err)

    def test_between_hosts_keep_the_congestion_control_that_these_have(self):
        for name in {"bbr", "cubic"} & set(AVAILABLE.read_text().split()):
            with self.subTest(name), Lab(hosts=2, rate="1Gbit", congestion_control=name) as lab:
                run = lab.start([ENDLESS], environment=CLEAN)
                self.assertTrue(run.wait_for_words("running", 30))
                for result in lab.run(["ss", "--tcp", "--info", "--no-header", "state", "established"], limit=10):
                    self.assertIn(f" {name} ", result.out)
                    self.assertNotIn(" reno ", result.out)
                for host in range(lab.hosts):
                    run.kill(host)
                run.wait(limit=30)

    @unittest.skipUnless(DEFAULT.read_text().strip() == "bbr", "means something where bbr is the machine's default")
    def test_go_without_bbr_where_the_path_is_short(self):
        for name, relay in (("reno", Relay(RELAY)), ("bbr", Relay(RELAY, delay_ms=20))):
            with self.subTest(name), Lab(hosts=2, relay=relay) as lab:
                run = lab.start([ENDLESS], environment=CLEAN)
                self.assertTrue(run.wait_for_words("running", 30))
                for result in lab.run(["ss", "--tcp", "--info", "--no-header", "state", "established"], limit=10):
                    self.assertIn(f" {name} ", result.out)
                    self.assertNotIn({"reno": " bbr ", "bbr": " reno "}[name], result.out)
                for host in range(lab.hosts):
                    run.kill(host)
                run.wait(limit=30)


class Blame(unittest.TestCase):
    def assert_blamed(self, results: list[Result], lost: int, began: float, bound: float) -> None:
        for result in results:
            self.assertFalse(result.timed_out, result)
            if result.host == lost:
                continue
            self.assertEqual(result.code, 1, result)
            self.assertLess(result.ended - began, bound, result)
            self.assertIn(f"culprit {lost}: ", result.err)
            self.assertIn(f"rank {lost}", result.err)


class OnlyHttp2(Blame):
    """Hosts between which nothing passes but HTTP/2 at one port of each: the first that whoever connects says is its
    preface, or all that comes from him is dropped."""

    PORT = 20000
    PORTS = CLEAN | {"RANVIER_PORTS": f"{PORT}-{PORT}"}
    SETTINGS = PORTS | {"RANVIER_INSECURE": "1"}
    PREFACE, TLS = "0,64 != 0x" + b"PRI * HT".hex(), "0,16 != 0x1603"
    FILTER = """table inet only_http2 {{
        counter passed {{ }}
        counter dropped {{ }}
        chain out {{
            type filter hook output priority 0
            oifname lo accept
            ct direction original ct original packets 3 @ih,{beginning} ct mark set 1
            ct mark 1 counter name dropped drop
            tcp dport {port} counter name passed accept
            tcp sport {port} counter name passed accept
            meta l4proto {{ tcp, udp }} counter name dropped drop
        }}
    }}
    """

    def on_host(self, lab: Lab, host: int, *words: str, **options) -> str:
        return command("ip", "netns", "exec", lab.namespace(host), *words, **options)

    def narrow(self, lab: Lab, beginning: str = PREFACE) -> None:
        for host in range(lab.hosts):
            self.on_host(lab, host, "sysctl", "--quiet", "--write", "net.netfilter.nf_conntrack_acct=1")
            self.on_host(lab, host, "nft", "-f", "-", stdin=self.FILTER.format(beginning=beginning, port=self.PORT))

    def counted(self, lab: Lab, host: int) -> tuple[int, int]:
        """Packets that passed, and that were dropped."""
        listing = json.loads(self.on_host(lab, host, "nft", "-j", "list", "counters"))
        counters = {each["counter"]["name"]: each["counter"]["packets"] for each in listing["nftables"] if "counter" in each}
        return counters["passed"], counters["dropped"]

    def bench(self, lab: Lab, transport: str, settings: dict[str, str] = SETTINGS) -> list[Result]:
        words = [RANVIER, "bench", "--transport", transport, "--no-pin", "--samples", "2", "--iters", "2"]
        words += ["-b", "4", "-e", "4M", "-f", "64", "--join-timeout", "5"]
        return lab.run(words, limit=100, environment=settings)

    def test_is_enough_for_grpc(self):
        for hosts in (2, 4):
            with self.subTest(hosts=hosts), Lab(hosts=hosts) as lab:
                self.narrow(lab)
                for result in self.bench(lab, "grpc"):
                    self.assertEqual((result.code, result.err), (0, ""), result)
                for host in range(hosts):
                    passed, dropped = self.counted(lab, host)
                    self.assertGreater(passed, 10)
                    self.assertEqual(dropped, 0)

    def test_is_enough_inside_tls(self):
        with Lab(hosts=3) as lab:
            self.narrow(lab, self.TLS)
            for result in self.bench(lab, "grpc", self.PORTS | certificates(lab.network.folder)):
                self.assertEqual((result.code, result.err), (0, ""), result)
            self.assertEqual([self.counted(lab, host)[1] for host in range(3)], [0, 0, 0])

    def test_is_not_enough_for_tcp(self):
        with Lab(hosts=2) as lab:
            self.narrow(lab)
            for result in self.bench(lab, "tcp"):
                self.assertEqual((result.code, result.timed_out), (1, False), result)
            self.assertGreater(self.counted(lab, 1)[1], 0)

    def test_tells_of_a_lost_process_and_of_a_lost_link(self):
        for cuts, bound in ((False, DEATH_BOUND_S), (True, SILENCE_BOUND_S)):
            with self.subTest(cuts=cuts), Lab(hosts=4) as lab:
                self.narrow(lab)
                run = lab.start([ENDLESS], environment=self.SETTINGS | {"RANVIER_TRANSPORT": "grpc"})
                self.assertTrue(run.wait_for_words("running", 30), [run.said(host, "err") for host in range(lab.hosts)])
                began = time.monotonic()
                if cuts:
                    lab.cut(2)
                else:
                    run.kill(2)
                results = run.wait(limit=60)
                self.assert_blamed(results, 2, began, bound)
                if cuts:
                    for result in results[:2] + results[3:]:
                        self.assertIn("has heard nothing from rank 2 for 3.0 s", result.err)


class Replays(unittest.TestCase):
    """Whatever a rank has said when it came, somebody else who says it again does not get in and does no harm."""

    def words(self, lab: Lab, transport: str, operations: int, *more: str) -> list:
        return [RANVIER, "bench", "--transport", transport, *more, "--no-pin", "-b", "1M", "-e", "1M", "--samples", "2",
                "--iters", operations, "--json", lab.network.folder / "result.json"]  # fmt: skip

    def assert_right(self, lab: Lab, results: list[Result]) -> None:
        for result in results:
            self.assertEqual((result.code, result.err), (0, ""), result)
        (row,) = json.loads((lab.network.folder / "result.json").read_text())["rows"]
        self.assertEqual(row["wrong"], 0)

    def test_of_greetings_while_the_job_meets(self):
        for transport, *more in (("tcp",), ("tcp", "--insecure"), ("grpc", "--insecure"), ("udp",)):
            with self.subTest(transport=transport, more=more), Lab(hosts=4) as lab:
                recorder = Recorder(lab.namespace(0), lab.addresses[0])
                lab.cut(2)  # whom the others wait for, with their ports open
                try:
                    run = lab.start(self.words(lab, transport, 2, *more), hosts=3, environment=CLEAN)
                    time.sleep(2)
                finally:
                    heard = recorder.heard()
                self.assertTrue(any(len(stream) > 30 for stream in heard.streams.values()), "rank 1 has not come")
                stranger = Stranger(lab.namespace(3))
                answered = stranger.say_again(lab.addresses[0], heard, 2)
                self.assertGreater(stranger.let_in, 0, "the port was closed")
                if more:  # who has come stays; the other flight begins with one of TLS, which is answered
                    self.assertEqual(answered, b"")
                self.assertEqual(run.running(), [0, 1, 2])
                lab.mend(2)
                self.assert_right(lab, run.wait(limit=60))

    def test_of_datagrams_while_the_job_runs(self):
        for more in ([], ["--insecure"]):
            with self.subTest(more=more), Lab(hosts=3, rate="200Mbit") as lab:
                recorder = Recorder(lab.namespace(0), lab.addresses[0])
                try:
                    run = lab.start(self.words(lab, "udp", 60, *more), hosts=2, environment=CLEAN)
                    time.sleep(2)
                finally:
                    heard = recorder.heard()
                self.assertGreater(len(heard.datagrams), 100, "nothing was sent")
                heard.streams.clear()
                del heard.datagrams[400:]
                answered = Stranger(lab.namespace(2)).say_again(lab.addresses[0], heard, 2)
                self.assertEqual(run.running(), [0, 1], "it had ended before")
                if not more:
                    self.assertEqual(answered, b"")
                self.assert_right(lab, run.wait(limit=60))


class Losses(Blame):
    """Whoever is left ends soon and names the rank that was lost."""

    def begin(self, lab: Lab, transport: str = "tcp") -> Run:
        run = lab.start([ENDLESS], environment=CLEAN | {"RANVIER_TRANSPORT": transport})
        self.assertTrue(run.wait_for_words("running", 30), [run.said(host, "err") for host in range(lab.hosts)])
        return run

    def test_of_a_process(self):
        for hosts, lost in ((2, 0), (4, 2)):
            with self.subTest(hosts=hosts), Lab(hosts=hosts, rate="1Gbit") as lab:
                run = self.begin(lab)
                began = time.monotonic()
                run.kill(lost)
                results = run.wait(limit=30)
                self.assert_blamed(results, lost, began, DEATH_BOUND_S)
                self.assertEqual(results[lost].code, -signal.SIGKILL)

    def test_of_a_link(self):
        for hosts, lost in ((2, 1), (4, 2)):
            with self.subTest(hosts=hosts), Lab(hosts=hosts, rate="1Gbit") as lab:
                run = self.begin(lab)
                began = time.monotonic()
                lab.cut(lost)
                results = run.wait(limit=30)
                self.assert_blamed(results, lost, began, SILENCE_BOUND_S)
                # The one that is cut off cannot know that it is alone; it ends as soon, and blames another.
                self.assertEqual(results[lost].code, 1)
                self.assertLess(results[lost].ended - began, SILENCE_BOUND_S)
                self.assertRegex(results[lost].err, rf"culprit (?!{lost})\d: ")

    def test_of_an_mtu(self):
        # What has left before it falls may vanish; packets of the old size are refused by the kernel at once.
        with Lab(hosts=2, rate="1Gbit") as lab:
            run = self.begin(lab, "udp")
            began = time.monotonic()
            command("ip", "-n", lab.namespace(1), "link", "set", "eth0", "mtu", "1000")
            results = run.wait(limit=30)
        for result in results:
            self.assertEqual((result.code, result.timed_out), (1, False), result)
            self.assertLess(result.ended - began, SILENCE_BOUND_S, result)
            self.assertIn("rank 1 can send no more to rank 0 by udp: a link on the way has an MTU of 1000", result.err)

    def test_of_an_mtu_that_nobody_tells_of(self):
        large = "ip protocol udp ip length > 1000 drop"  # as a tunnel on the way would whose routers keep silent
        with Lab(hosts=2, relay=Relay(RELAY, rate="200Mbit")) as lab:
            run = self.begin(lab, "udp")
            words = "add table ip way; add chain ip way in { type filter hook input priority 0; }; add rule ip way in"
            command("ip", "netns", "exec", lab.namespace(1), "nft", f"{words} {large}")
            results = run.wait(limit=60)
        for result in results:
            self.assertEqual((result.code, result.timed_out), (1, False), result)
            self.assertIn("rank 0 can send no more to rank 1 by udp: a link on the way has an MTU below that", result.err)

    def test_of_heartbeats_alone_is_none_where_datagrams_come(self):
        # As where so many packets are lost that tcp waits for longer than a rank may be silent.
        with Lab(hosts=2, rate="1Gbit") as lab:
            run = self.begin(lab, "udp")
            way = ["ip", "netns", "exec", lab.namespace(1), "nft"]
            command(*way, "add table ip way; add chain ip way in { type filter hook input priority 0; }; add rule ip way in ip protocol tcp drop")
            time.sleep(8)
            self.assertEqual(run.running(), [0, 1], [run.said(host, "err") for host in range(2)])
            command(*way, "delete table ip way")
            began = time.monotonic()
            run.kill(1)
            results = run.wait(limit=30)
            self.assert_blamed(results, 1, began, SILENCE_BOUND_S)

    def test_of_datagrams_alone(self):
        # Heartbeats go by tcp, and so nobody is silent.
        with Lab(hosts=3, rate="1Gbit") as lab:
            run = self.begin(lab, "udp")
            began = time.monotonic()
            words = "add table ip way; add chain ip way in { type filter hook input priority 0; }; add rule ip way in"
            command("ip", "netns", "exec", lab.namespace(2), "nft", f"{words} ip protocol udp drop")
            results = run.wait(limit=60)
        for result in results:
            self.assertEqual((result.code, result.timed_out), (1, False), result)
            self.assertLess(result.ended - began, 30, result)
            self.assertRegex(
                result.err,
                r"rank \d has acknowledged nothing by udp that rank \d sent to 10[.\d]+ for \d+ s; does a firewall drop UDP",
            )


def load_tests(_loader: unittest.TestLoader, tests: unittest.TestSuite, _pattern: str | None) -> unittest.TestSuite:
    """Of RANVIER_TEST_SHARD=I/N every N-th: most of them wait for most of their time, and their hosts are their own."""
    index, _, count = os.environ.get("RANVIER_TEST_SHARD", "0/1").partition("/")
    each = [test for of_class in tests for test in of_class]
    return unittest.TestSuite(each[int(index) :: int(count)])


if __name__ == "__main__":
    if reason := reason_to_skip():
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
