"""Messages of protobuf, as far as tests of Chakra's traces write them, without its library.
https://protobuf.dev/programming-guides/encoding/"""


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


COMPUTE, SEND, COLLECTIVE = 4, 5, 7


def chakra(nodes: list[dict]) -> bytes:
    """A trace as the published schema has it: what each node waits for, and its time, an all_reduce of a group, or a send."""
    head = block(1, b"0.0.4")
    trace = varint(len(head)) + head
    for index, node in enumerate(nodes):
        content = number(1, index) + block(2, b"n") + block(5, b"".join(map(varint, node["after"])))
        if "us" in node:
            content += number(3, COMPUTE) + number(7, node["us"])
        else:
            content += block(10, block(1, b"comm_size") + number(9, node["bytes"]))
            if "group" in node:
                content += number(3, COLLECTIVE) + block(10, block(1, b"comm_type") + number(9, 0))
                content += block(10, block(1, b"pg_name") + block(29, node["group"].encode()))
            else:
                content += number(3, SEND)
        trace += varint(len(content)) + content
    return trace
