"""Writes corpus/: a few inputs for each fuzz target, near which short_run.cc and campaigns begin. Run it again when a
format or a target changes; what a campaign found and matters may be added by hand."""

import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))

from protobuf_bytes import block, number, varint  # noqa: E402

CORPUS = pathlib.Path(__file__).parent / "corpus"


def write(target: str, name: str, content: bytes) -> None:
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


def floats(count: int) -> bytes:
    return struct.pack(f"<{count}f", *((-1) ** i * 1.7 ** (i % 13 - 9) for i in range(count)))


def codecs() -> None:
    for spec in range(20):  # of codec_fuzz.cc: values that are encoded, and bytes that are no code
        write("codec_fuzz", f"values_{spec:02}", bytes([spec, 1, 0, 0]) + floats(40 + 60 * (spec % 3)))
    write("codec_fuzz", "bytes", bytes([9, 0, 0, 64]) + bytes(range(90)))
    for kind in range(12):  # of coding_fuzz.cc: a decoder, and whether it gets a code
        for whole in (0, 1):
            symbols = bytes(i * i % (3 + 20 * kind) for i in range(120))
            write("coding_fuzz", f"{kind:02}_{whole}", bytes([2 * kind + whole, 200, 0, 0]) + symbols)
    for kind in range(3):  # which have bitmaps: a code of 20,000 symbols with one, and 61,440 that are mostly zero
        code = bytes([3, 0, 2, 0, 0, 1, 0x0F, 1, 7])
        write("coding_fuzz", f"{kind:02}_bitmap_0", bytes([2 * kind, *(20_000).to_bytes(3, "little")]) + code)
        symbols = bytes(8) + bytes(80) + bytes(i * i % 50 for i in range(40))
        write("coding_fuzz", f"{kind:02}_bitmap_1", bytes([2 * kind + 1, *(511).to_bytes(3, "little")]) + symbols)


def packet(kind: int, number: int, *, lane: int = 0, offset: int = 0, payload: bytes = b"", ranges=(), limit: int = 65536) -> bytes:
    head = struct.pack("<QQQiIHHBBBB", 5, number, offset, 1, 0, len(payload), 0, 4, kind, lane, len(ranges))
    if ranges:
        head += struct.pack("<IIIII8Q", 100, 1, 5000, 12500, 1, *[limit] * 8)
        head += b"".join(struct.pack("<QQ", *each) for each in ranges)
    return head + payload


def datagrams(*each: bytes) -> bytes:
    return b"".join(struct.pack("<HB", len(one), 20) + one for one in each)


def udp() -> None:
    data = [packet(0, i + 1, lane=i % 2, offset=40 * (i // 2), payload=bytes(40)) for i in range(6)]
    write("udp_fuzz", "in_order", datagrams(*data))
    write("udp_fuzz", "out_of_order", datagrams(*reversed(data), *data))
    acknowledged = [packet(0, 0, ranges=[(1, 2)]), packet(0, 0, ranges=[(4, 6), (1, 3)], limit=66000)]
    write("udp_fuzz", "acknowledged", datagrams(data[0], *acknowledged, data[1], packet(0, 0, ranges=[(1, 9)])))
    write("udp_fuzz", "probed", datagrams(packet(1, 1, payload=bytes(300)), packet(1, 2), data[2]))
    write("udp_fuzz", "left", datagrams(data[0], packet(4, 0, ranges=[(1, 2)]), data[1]))
    write("udp_fuzz", "silent", datagrams(data[0], *[b""] * 30))
    sizes = (1024, 1024, 452)
    once = [packet(5, i + 1, offset=(i // 3) << 32 | i % 3, payload=bytes(sizes[i % 3])) for i in range(6)]
    write("udp_fuzz", "partial", datagrams(*once))
    write("udp_fuzz", "partial_late", datagrams(*reversed(once), *once))
    two = packet(5, 2, offset=2 << 32 | 1, payload=bytes(2048))
    write("udp_fuzz", "partial_acknowledged", datagrams(once[0], packet(0, 0, ranges=[(1, 9)]), two))


def tls() -> None:
    def does(what: int, number: int, more: bytes = b"") -> bytes:
        return bytes([what, *number.to_bytes(2, "big")]) + more

    some, much = does(0, 24 << 8 | 30), does(0, 16 << 8 | 200)  # 24 and 900 B, 16 and 40,000 B
    write("tls_fuzz", "honest", some + does(1, 500) + does(2, 100) + much + does(1, 40_000) + does(2, 30_000) + some)
    write("tls_fuzz", "new_keys", does(3, 0) + 5 * some + does(2, 2000) + does(3, 1 << 8) + much + 3 * some + does(2, 100))
    write("tls_fuzz", "changed", some + does(1, 946) + does(2, 4000) + much + does(4, 20_000))
    write("tls_fuzz", "longer", some + bytes([4 + 64, 0, 3]) + much + does(1, 50_000) + does(2, 20_000))
    write("tls_fuzz", "left_out", 3 * some + does(1, 946) + does(5, 946))
    write("tls_fuzz", "repeated", some + does(7, 946) + does(2, 100) + does(2, 1000))
    record = bytes([23, 3, 3, 0, 19]) + bytes(19)
    write("tls_fuzz", "inserted", some + does(6, len(record), record) + some)


def greeting() -> None:
    def said(place: int, kind: int, rank: int, echo: bool, payload: bytes = bytes(16)) -> bytes:
        head = struct.pack("<QQQiIHHBBBB", 5, 1 << 20, 1 << 20, rank, 0, len(payload), 0, 3, kind, 0, 0)
        return bytes([2 * place + echo, 20]) + struct.pack("<H", len(head + payload)) + head + payload

    hello, welcome, challenge = 2, 3, 6
    write("greeting_fuzz", "called", said(0, hello, 2, False) + said(0, hello, 2, True, bytes(1100)))
    write("greeting_fuzz", "calls", said(1, challenge, 0, True) + said(1, welcome, 0, True, bytes(1100)))
    write("greeting_fuzz", "elsewhere", said(1, challenge, 0, True) + said(2, welcome, 0, False) + said(3, hello, 2, False))
    again = said(1, challenge, 0, True)
    write("greeting_fuzz", "narrow", 70 * (again[:1] + b"\xff" + again[2:]))
    write("greeting_fuzz", "short", said(0, hello, 2, True, bytes(15)) + said(0, welcome, 2, True) + said(0, hello, 1, True))


def guests() -> None:
    def real(field: int, value: float) -> bytes:
        return varint(field << 3 | 1) + struct.pack("<d", value)

    head = number(1, 3) + number(2, 1) + real(3, 0.1) + real(4, 0.5)
    whole = head + block(6, floats(6))
    write("guests_fuzz", "pull", bytes([0, 1]) + number(1, 3))
    for cut in (1, 7, 60):
        write("guests_fuzz", f"push_{cut}", bytes([1, cut]) + whole)
    write("guests_fuzz", "two", bytes([2, 9]) + head + block(6, floats(3)) + number(5, 3) + block(6, floats(3)))
    write("guests_fuzz", "unknown", bytes([1, 9]) + number(99, 1) + block(98, b"x") + varint(97 << 3 | 5) + bytes(4) + whole)


def http2() -> None:
    def does(what: int, number: int, more: bytes = b"") -> bytes:
        return bytes([what, *number.to_bytes(2, "big")]) + more

    def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload

    much, little = does(0, 0xFF00), does(0, 0x0103)  # 64 KiB, and 259 B of which the wire takes three
    arrives, taken = does(1 + 8 * 31, 0xFFFF), does(2 + 64 * 3, 0xFFFF)
    write("http2_fuzz", "honest", much + arrives + taken + does(0, 0x0200) + arrives + does(2, 0x4080) + taken + does(7, 0))
    write("http2_fuzz", "little", 20 * little + arrives + does(2, 0x0102) + does(2, 0x1002) + 5 * little + does(7, 0))
    write("http2_fuzz", "aside", much + does(1, 0x2000) + 3 * does(3, 0x1000) + does(2, 0x1010) + arrives + does(3, 0x0FFF) + taken)
    write("http2_fuzz", "changed", much + does(1, 0x0100) + does(4, 0) + does(4 + 8, 3) + arrives + taken)
    write("http2_fuzz", "left_out", little + little + does(5, 2) + much + arrives + taken)
    settings = frame(4, 0, 0, bytes([0, 4, 0, 0, 0, 9, 0, 5, 0, 16, 0, 0]))
    for name, inserted in {
        "settings": settings,
        "ping": frame(6, 0, 0, bytes(8)),
        "update": frame(8, 0, 1, bytes([0, 0, 1, 0])),
        "padded": frame(0, 8, 1, bytes([3, 0, 0, 0, 0, 2, 65, 66, 0, 0, 0])),
        "reset": frame(3, 0, 1, bytes(4)),
        "large": bytes([16, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 31, 255, 255]),
    }.items():
        write("http2_fuzz", name, does(0, 0x0100) + arrives + does(6, len(inserted), inserted) + does(0, 0x0200) + arrives + taken)


def meeting() -> None:
    def hello(step: int, *, origin: int = 1, purpose: int = 0, channel: int = 0, epoch: int = 0) -> bytes:
        return struct.pack("<IHH16siiBBBB", 0x524E5652, 1, epoch, bytes(16), origin, 0, purpose, channel, step, 0)

    for knows in range(4):  # 2 and 3: where connections are calls of gRPC
        write("meeting_fuzz", f"hello_{knows}", bytes([knows]) + hello(1))
        write("meeting_fuzz", f"whole_{knows}", bytes([knows]) + hello(1) + hello(3) + b"data")
        write("meeting_fuzz", f"control_{knows}", bytes([knows]) + hello(1, purpose=1))
        write("meeting_fuzz", f"other_{knows}", bytes([knows]) + hello(1, origin=7, channel=9, epoch=3))
    write("meeting_fuzz", "protocol", bytes([0]) + b"GET / HTTP/1.1\r\nHost: ranvier\r\n\r\n")
    frames = bytes.fromhex("000006040000000000" "000400100000" "000001010400000001" "83" "000029000000000001" "0000000024")
    write("meeting_fuzz", "call", bytes([2]) + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frames + hello(1))
    write("meeting_fuzz", "tls", bytes([0]) + b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")


def requests() -> None:
    def request(kind: int, *fields: object, gradient: bytes = b"") -> bytes:
        """Of a parameter server: number, rate, share, samples, stop_at, most, guest."""
        content = struct.pack("<QQddQQQi4x", kind, *fields) + gradient
        return bytes([len(content)]) + content

    def average(kind: int, values: bytes = b"", ended: int = 2, stop_at: int = 9, most: int = 3) -> bytes:
        content = struct.pack("<QQQQ", kind, ended, stop_at, most) + values
        return bytes([len(content)]) + content

    usual = (1, 0.1, 1.0, 1, 9, 3, -1)
    begin, pull, leave = (request(kind, *usual) for kind in (0, 2, 3))
    pushes = [request(1, number, *usual[1:], gradient=floats(8)) for number in (1, 2, 2)]
    head = struct.pack("<Q", 0)
    for way in (0, 2, 4, 6):
        write("requests_fuzz", f"server_{way}", bytes([way]) + begin + pushes[0] + begin + pushes[1] + pull + pushes[2] + leave)
        write("requests_fuzz", f"guest_{way}", bytes([way]) + request(1, *usual[:-1], 3, gradient=floats(8)) + request(2, *usual[:-1], 5))
        write("requests_fuzz", f"odd_{way}", bytes([way]) + request(1, 1, float("nan"), 1e300, 1 << 63, 0, 0, -1, gradient=floats(8)))
        write("requests_fuzz", f"short_{way}", bytes([way]) + begin + pushes[0][:40])
    write("requests_fuzz", "coded", bytes([4]) + request(1, *usual, gradient=head + bytes([4, 0, 0, 63] + list(range(8)))))
    for way in (1, 5):
        write("requests_fuzz", f"peer_{way}", bytes([way]) + average(1, floats(8)) + average(1, floats(8)) + average(2))
        write("requests_fuzz", f"peer_begin_{way}", bytes([way]) + average(0) + average(1, bytes(12)))


def frame(kind: int, payload: bytes = b"", error: int = 3, origin: int = 1, culprit: int = -1) -> bytes:
    return struct.pack("<BBHii", kind, error, len(payload), origin, culprit) + payload


def pieces(content: bytes, size: int, pause_ms: int) -> bytes:
    cut = [content[i : i + size] for i in range(0, len(content), size)]
    return b"".join(bytes([len(each), pause_ms]) + each for each in cut)


def control() -> None:
    beat, left = frame(1), frame(3)
    fault = frame(2, b"rank 4 was killed", culprit=4, origin=3)
    waits = frame(4, struct.pack("<IHBBBBBBiQ", 1, 0, 0, 0, 0, 0, 0, 0, 0, 4096))
    write("control_fuzz", "heartbeats", pieces(8 * beat, 12, 250))
    write("control_fuzz", "silence", pieces(beat, 12, 10) + 40 * bytes([0, 250]))
    write("control_fuzz", "fault", pieces(beat + fault + beat, 7, 1))
    write("control_fuzz", "departure", pieces(beat + left + frame(3, origin=4), 255, 1))
    write("control_fuzz", "waiting", bytes([0, 9]) + pieces(waits + waits + beat, 20, 100))
    question = struct.pack("<IIIB3x", 1, 1, 0, 0)
    answer = struct.pack("<IBBxxiIQ", 1, 1, 1, -1, 5, 9) + b"all_reduce #5 of group 'B' for 5 s"
    moved_on = struct.pack("<IBBxxiIQ", 1, 2, 0, 4, 0, 0)
    asks = bytes([1, 9]) + frame(1)[:1] + pieces(frame(1)[1:], 12, 1)  # a piece of one byte has it ask rank 3
    told = frame(6, moved_on, origin=3, culprit=0) + frame(6, answer, origin=4, culprit=0)
    write("control_fuzz", "asked", pieces(frame(5, question, culprit=0) + frame(5, question, culprit=4) + beat, 30, 9))
    write("control_fuzz", "answered", asks + pieces(told + frame(6, answer, origin=2, culprit=5), 50, 9))
    write("control_fuzz", "long_fault", pieces(frame(2, b"x" * 1024), 200, 1))
    write("control_fuzz", "garbage", pieces(beat + b"GET / HTTP/1.1\r\n\r\n", 30, 1))


TEXTS = {
    0: ["all_reduce tcp 4 1K one_round\nall_reduce tcp 4 512K direct\nall_reduce tcp 4 max ring\n# x\nbroadcast shm 2 max binomial\n"],
    1: ["topk:0.01+int8+rans", "torus:2x4,root=1"],
    2: ["ring", "torus:2x4", "hierarchical:2", "neighbor_exchange:2x4,periods=1x0"],
    3: ["RI(4)_FC(8)_RI(4)_SW(32)"],
    4: ["2*b0 - b1 + 30 <= 3 b2 + 100GB/s", "b0>=b1>=b2", "-b3 >= -5", "b0 = 2Gbit"],
    5: ["topk:0.01+int8+rans", "hadamard:32+int4", "dct+sidco:0.01+eden:3", "bf16+lossless", "qsgd:7+huffman", "randk:0.2"],
    6: [
        "tcp/3 host=b7/40 token=000102030405060708090a0b0c0d0e0f port=4242 sockets=1 cpus=0-3,8 at=10.0.0.1,fd00::1",
        "udp/4 port=4243 key=feed tcp/3 host=b7/40 token=000102030405060708090a0b0c0d0e0f port=0 sockets=1 cpus=0 at=10.0.0.1",
        "mpi-3 b7/40 4 3 128 0-1",
        "ucx-2 0-1 5:b7/40worker",
    ],
    7: ["shm3:host.pid[4026531836].0:4711:12:6699:15437"],
    8: ["shm+mpi", "auto", "tcp"],
    9: ["64K", "1.5Gbit", "20000-20100", "max"],
}

FILES = {
    0: [
        'workload = "resnet50"\nnetwork = "star"\nranks = 4\n\ntransport = "tcp"\ncompress = "hadamard:32+int4"\n'
        'bucket_bytes = 1048576\n\nbecause = [\n  "it is \\"fast\\"",\n]\n\n[prediction]\nstep_ns = 12\ncompute_ns = 10\n'
        'exposed_communication_ns = 2\n\n[[all_reduce]]\nup_to_bytes = 4096\nalgorithm = "one_round"\n\n'
        '[[all_reduce]]\nalgorithm = "ring"\n'
    ],
    1: [
        'name = "cnn"\nother_ns = 310000\n[degrees]\ntensor = 2\n[[layer]]\nname = "conv1"\nforward_ns = 1200\nweight_gradient_ns = 2100\n'
        'communications = [{ pass = "weight_gradient", collective = "all_reduce", bytes = 3200, role = "data" }]\n'
        '[[layer]]\nname = "fc"\nforward_ns = 1e3\n'
    ],
    2: [
        'world = 2\ntransport = "tcp"\n'
        + "".join(
            f"[[link]]\nfrom = {a}\nto = {1 - a}\nlatency_us = 14.5\nlatency_spread_us = 0.5\ngbit_per_second = 0.9\n"
            f"gbit_spread = 0.04\nburst_bytes = 0\ngbit_both_ways = 1.7\n"
            for a in (0, 1)
        )
        + "[[machine]]\nranks = [0, 1]\ngbit_together = 1.5\n"
    ],
    3: ['{"compute_ns": 5e6, "terms": [{"weight": 2, "bytes": [1e6, 0, 3]}, {"bytes": [1, 2, 3]}]}'],
    4: [
        "HYBRID\n2\nQ1 -1 9375000 NONE 0 9375000 ALLREDUCE 805306368 9375000 ALLREDUCE 452984832 10\n"
        "concat1 -1 9375000 ALLREDUCE 805306368 9375000 ALLGATHER 50331648 9375000 NONE 0 10\n"
    ],
    5: ["Topology: [ Ring, FullyConnected, Ring, Switch ]\nNpusCount: [ 4, 8, 4, 32 ]\nCostDimension: [ InterChiplet, InterPackage, InterNode, InterPod ]\n"],
    6: ["InterPod:\n  Link: 7.8\n  Switch: 18.0\n  Nic: 31.6\n"],
    7: ["Forward: [ 4, 4, -1, -1 ]\nInputGrad: [ 4, 4, -1, -1 ]\nWeightGrad: [ -1, 2, 4, 32 ]\n"],
    9: TEXTS[0],
    10: ['{"1": [0, 1, 2, 3], "tp": [0, 4, 8, 12]}'],
}


def trace() -> bytes:
    """Of Chakra, as tests/plan/chakra_test.cc writes them."""

    def node(identity: int, kind: int, micros: int, after: list[int], attributes: bytes = b"") -> bytes:
        content = number(1, identity) + block(2, b"n") + number(3, kind) + block(5, b"".join(map(varint, after)))
        content += number(7, micros) + attributes
        return varint(len(content)) + content

    reduced = block(10, block(1, b"comm_type") + number(9, 0)) + block(10, block(1, b"comm_size") + number(9, 2000))
    head = block(1, b"0.0.4")
    return varint(len(head)) + head + node(2, 7, 0, [1], reduced) + node(1, 4, 10, []) + node(3, 4, 5, [1, 2])


def trace_with_groups() -> bytes:
    """As `trace`, with all that may say which ranks communicate."""

    def node(identity: int, kind: int, after: list[int], rest: bytes) -> bytes:
        content = number(1, identity) + block(2, b"n") + number(3, kind) + block(5, b"".join(map(varint, after))) + rest
        return varint(len(content)) + content

    def value(name: bytes, field: int, of: int | bytes) -> bytes:
        return block(10, block(1, name) + (number(field, of) if isinstance(of, int) else block(field, of)))

    groups = b'[\'[{"pg_name": "1", "ranks": [0, 1, 2, 3]}, {"pg_name": "0", "ranks": []}]\']'
    known = block(2, b"## process_group:init ##") + block(8, block(1, groups))
    reduced = value(b"comm_type", 9, 0) + value(b"comm_size", 9, 2000)
    sent = value(b"comm_size", 9, 64) + value(b"comm_src", 9, 0) + value(b"comm_dst", 9, 4)
    head = block(1, b"0.0.4")
    return b"".join((
        varint(len(head)), head, node(9, 1, [], known), node(1, 7, [], reduced + value(b"pg_name", 29, b"1")),
        node(2, 7, [1], reduced + value(b"involved_dim", 28, block(1, b"\1\0\0\1"))), node(3, 5, [2], sent), node(4, 6, [2], sent),
    ))


def calls() -> None:
    fields = ["ranvier 16", "ranvier bench", "auto", "7", "0", "ring", "none", "", "yes", "no", "none", "the key of the job", ""]
    fields += ["3000 ms, suspect after 1000 ms", "host 5 "]
    card = "".join(f"{len(each)}:{each}" for each in [*fields, "127.0.0.1:4711", "", "127.0.0.1:4712"])
    write("calls_fuzz", "card", b"\0" + card.encode())
    write("calls_fuzz", "card_of_another_version", b"\0" + card.replace("15", "14", 1).encode())
    write("calls_fuzz", "card_of_a_refusal", b"\0" + b"15:ranvier refuses21:there is no int9 here")
    write("calls_fuzz", "card_cut_short", b"\0" + card[:-5].encode())
    head = struct.pack("<IIHBBBBBBIBBHQ", 17, 99, 5, 0, 0, 0, 1, 16, 0, 0, 0, 0, 0, 1000)
    other = struct.pack("<IIHBBBBBBIBBHQ", 18, 99, 5, 3, 1, 2, 2, 16, 1, 9, 1, 2, 7, 10)
    write("calls_fuzz", "headers", b"\1" + head + other)
    write("calls_fuzz", "headers_alike", b"\1" + head + head)


def lanes() -> None:
    def header(sequence: int, collective: int, *, dtype: int = 0, op: int = 0, slice_log2: int = 12, size: int = 100) -> bytes:
        return struct.pack("<IIHBBBBBBIBBHQ", sequence, 0, 0, collective, dtype, op, 0, slice_log2, 0, 0, 0, 0, 0, size)

    def message(tag: int, size: int) -> bytes:
        return struct.pack("<HBBBBHQQII", 0, 10, 0, 0, 0, 0, tag, size, 0, 0)

    def pieces(lane: int, content: bytes) -> bytes:
        cuts = [content[at : at + 200] for at in range(0, len(content), 200)]
        return b"".join(bytes([lane, len(each)]) + each for each in cuts)

    for what, collective in ((2, 0), (3, 2), (4, 4), (5, 3), (6, 5), (7, 6), (8, 9)):
        two = pieces(0, header(0, collective)) + pieces(1, header(1, 0, size=3))
        write("lanes_fuzz", f"called_{what}", bytes([what]) + two + pieces(0, floats(100)))
    write("lanes_fuzz", "message", bytes([0]) + pieces(7, message(7, 400) + floats(100) + message(8, 12) + floats(3)))
    write("lanes_fuzz", "aside", bytes([1]) + pieces(7, message(9, 40) + floats(10) + message(7, 100) + floats(25)))


def exchanges() -> None:
    for spec in range(18):  # of exchange_fuzz.cc
        write("exchange_fuzz", f"untouched_{spec:02}", bytes([spec]))
        write("exchange_fuzz", f"changed_{spec:02}", bytes([spec, 0, 40 + spec, 255, 1, 0, 7, 2, 3, 128]))


def lines() -> None:
    write("lines_fuzz", "job", b"run all_reduce f32 sum 1000 in_place 1 20 varied 7 0")
    write("lines_fuzz", "neighbours", b"run neighbor_exchange f32 sum 8 out_of_place 0 1 ones 7 0 grid:2x2")
    write("lines_fuzz", "done", b"done 0.5 0 0.25 100 3 9 1 0 0.125 5 0 0 1234 0")
    write("lines_fuzz", "refused", b"refused there is no such algorithm")
    write("lines_fuzz", "failed", b"failed mismatch\trank 1 said \x1b[2J\t#0 all_reduce\t#1 barrier\x7f\t")


def rings() -> None:
    def does(what: int, one: int = 0, other: int = 0, content: bytes = b"") -> bytes:
        return bytes([what, one, other or len(content)]) + content

    def slot(number: int, mark: int) -> bytes:  # the tag of a slot of the ring that is read
        return does(8, number, content=struct.pack("<II", number + 1, mark))

    look, give = does(4, 255), does(3, 9, 100)
    write("ring_fuzz", "short", slot(0, 20) + look + slot(1, 504) + look + look)
    write("ring_fuzz", "large", slot(0, 1000) + look + does(4, 100) + slot(1, 1088 | 1 << 29) + does(5, 200) + look)
    write("ring_fuzz", "answer", give + does(16, 0, content=struct.pack("<III", 0, 9, 400)) + slot(0, 1 << 30) + look + does(6))
    write("ring_fuzz", "freed", 9 * give + does(1, 0, content=struct.pack("<II", 8, 0)) + give + does(7) + does(1, 0, content=b"\xff" * 8) + give)
    write("ring_fuzz", "lent", slot(0, 1 << 31 | 8) + look)


def checkpoints() -> None:
    head = (
        '{"identity":{"batch":"32","model":"mlp"},"momentum":3,"parameters":3,"rank_state":[2,0],"seconds":1.5,'
        '"step":9,"tuning":""}\n'
    )
    whole = b"ranvier checkpoint 4\n" + head.encode() + floats(6) + b"ab"
    write("checkpoint_fuzz", "whole", whole)
    write("checkpoint_fuzz", "too_many", whole.replace(b'"momentum":3', b'"momentum":4611686018427387904'))
    write("checkpoint_fuzz", "no_step", whole.replace(b'"step"', b'"stop"'))


def texts() -> None:
    for target, all_of in (("text_fuzz", TEXTS), ("files_fuzz", FILES)):
        for which, each in all_of.items():
            for index, text in enumerate(each):
                write(target, f"{which}_{index}", bytes([which]) + text.encode())
    write("files_fuzz", "8_0", bytes([8]) + trace())
    write("files_fuzz", "8_1", bytes([8]) + trace_with_groups())


if __name__ == "__main__":
    codecs()
    udp()
    tls()
    greeting()
    guests()
    http2()
    meeting()
    requests()
    control()
    calls()
    lanes()
    exchanges()
    lines()
    rings()
    checkpoints()
    texts()
