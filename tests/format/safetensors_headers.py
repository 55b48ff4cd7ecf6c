# SPDX-License-Identifier: Apache-2.0
"""Thousands of mutated safetensors files, to Python's safetensors and to ours: whatever ours
accepts, Python accepts; whatever Python accepts and ours refuses, ours refuses for one of the
reasons in safetensors_header.hpp. Usage: safetensors_headers.py parse_headers [count] [seed]"""
import json
import random
import re
import struct
import subprocess
import sys

import safetensors

# Where ours is stricter: what it says, and files that show it, which Python must accept.
ONE = '"dtype":"I8","shape":[4],"data_offsets":[0,4]'
STRICTER = {
    r'" comes twice': '{"a":{%s},"a":{%s}}' % (ONE, ONE),
    r"__metadata__ comes twice": '{"__metadata__":{"x":"1","x":"2"},"a":{%s}}' % ONE,
    r"longer than 512 bytes": '{"%s":{%s}}' % ("x" * 513, ONE),
    r"control characters": '{"a\\u0007":{%s}}' % ONE,
    r"exceeded maximum|too large": '{"a":{"dtype":"I8","shape":[%s4],"data_offsets":[0,4]}}' % ("1," * 16),
    r"invalid shape": '{"z":{"dtype":"I8","shape":[9223372036854775808,0],"data_offsets":[0,0]},"a":{%s}}' % ONE,
    r"unknown field": '{"a":{%s,"x":1}}' % ONE,
    r"an array in the wrong place": '{"a":["I8",[4],[0,4]]}',
    r"an object in the wrong place": '{"a":{"dtype":{"I8":null},"shape":[4],"data_offsets":[0,4]}}',
    r"unknown type": '{"a":{"dtype":"F4","shape":[8],"data_offsets":[0,4]}}',
    r"does not begin with '\{'": ' {"a":{%s}}' % ONE,
}


def pack(header, data):
    header = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(header)) + header + data


def python_accepts(file):
    try:
        safetensors.deserialize(file)
        return True
    except safetensors.SafetensorError:
        return False


def sound(rng):
    """A file that both accept."""
    sizes = {"F64": 8, "I64": 8, "F32": 4, "BF16": 2, "U16": 2, "I8": 1, "BOOL": 1, "C64": 8}
    header, offset = {}, 0
    if rng.random() < 0.3:
        header["__metadata__"] = {"format": "pt", "\u20ac": 'a"\n'}
    for i in range(rng.randrange(4)):
        shape = [rng.randrange(5) for _ in range(rng.randrange(4))]
        kind = rng.choice(sorted(sizes))
        count = sizes[kind]
        for size in shape:
            count *= size
        header[f"t{i}.w\u00e9"] = {"dtype": kind, "shape": shape, "data_offsets": [offset, offset + count]}
        offset += count
    items = list(header.items())
    rng.shuffle(items)
    text = json.dumps(dict(items), ensure_ascii=rng.random() < 0.5)
    return text + " " * rng.randrange(3), rng.randbytes(offset)


TOKENS = ["0", "1", "-1", "-0", "4.0", "1e1", "9223372036854775807", "18446744073709551615",
          "18446744073709551616", "null", "true", "[]", "{}", '""', '"I8"', '"F32"', '"F4"', "[0,4]",
          '"a"', '"__metadata__"', '"dtype"', '"shape"', '"data_offsets"', '"x":1,', ",", ":", "[", "]",
          "{", "}", " ", "\\u0000", "\\ud800", "\u00e9", "/**/", "NaN", "\n", "\0"]


def mutate(rng, text, data):
    text = text.encode()
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        place = rng.randrange(len(text) + 1)
        kind = rng.randrange(7)
        if kind == 0 and place < len(text):
            text = text[:place] + bytes([text[place] ^ 1 << rng.randrange(8)]) + text[place + 1:]
        elif kind == 1:
            text = text[:place] + rng.choice(TOKENS).encode() + text[place:]
        elif kind == 2:  # a number or string becomes another token
            spans = [m.span() for m in re.finditer(rb'\d+|"[^"]*"|\[[^][]*\]|\{[^{}]*\}', text)]
            if spans:
                begin, end = rng.choice(spans)
                text = text[:begin] + rng.choice(TOKENS).encode() + text[end:]
        elif kind == 3:  # something comes twice
            spans = [m.span() for m in re.finditer(rb'"[^"]*": ?(\{[^{}]*\}|\[[^][]*\]|"[^"]*")', text)]
            if spans:
                begin, end = rng.choice(spans)
                text = text[:end] + b"," + text[begin:end] + text[end:]
        elif kind == 4:
            text = text[:place] + text[place + rng.randrange(1, 4):]
        elif kind == 5:
            data = data[: rng.randrange(len(data) + 1)] if rng.random() < 0.5 else data + b"x"
        elif kind == 6:  # names of two entries swap places
            names = sorted(set(re.findall(rb'"[^"]*"', text)))
            if len(names) > 1:
                a, b = rng.sample(names, 2)
                text = text.replace(a, b"\x01").replace(b, a).replace(b"\x01", b)
    file = bytearray(pack(text, data))
    if rng.random() < 0.05:
        file[rng.randrange(min(8, len(file)))] = rng.randrange(256)
    if rng.random() < 0.05:
        del file[rng.randrange(len(file)):]
    return bytes(file)


def main():
    program = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20000
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    shown = [pack(header, b"xxxx") for header in STRICTER.values()]
    files = shown + [mutate(rng, *sound(rng)) for _ in range(count)]
    stream = b"".join(struct.pack("<Q", len(file)) + file for file in files)
    result = subprocess.run([program], input=stream, stdout=subprocess.PIPE, check=True)
    verdicts = result.stdout.decode(errors="replace").split("\n")[:-1]
    assert len(verdicts) == len(files), (len(verdicts), len(files))
    for reason, verdict, file in zip(STRICTER, verdicts, files):
        assert re.search(reason, verdict), (reason, verdict)
        assert python_accepts(file), reason
    both = neither = stricter = 0
    for file, verdict in zip(files, verdicts):
        python = python_accepts(file)
        if verdict == "ok":
            assert python, f"only ours accepts {file!r}"
            both += 1
        elif python:
            assert any(re.search(reason, verdict) for reason in STRICTER), f"{verdict}: {file!r}"
            stricter += 1
        else:
            neither += 1
    print(f"{len(files)} files: {both} accepted, {neither} refused, {stricter} refused by ours only")
    assert both > count / 10 and neither > count / 10


main()
