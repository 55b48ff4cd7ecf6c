#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether TensorBoard's own reader finds in our event files what was reported.

Usage: tensorboard_test.py WRITE_EVENTS

WRITE_EVENTS is write_events.cpp's program.
"""

import io
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

SKIPPED = 77

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2
except ImportError as error:
    print(f"skipped: TensorBoard is not installed: {error}")
    sys.exit(SKIPPED)

try:
    import PIL.Image
except ImportError:  # TensorBoard does not need it
    PIL = None

ALL = {"scalars": 0, "tensors": 0, "histograms": 0, "images": 0}


def read(run, directory="tensorboard"):
    events = EventAccumulator(str(run / directory), size_guidance=ALL)
    events.Reload()
    return events


def scalars(events, tag):
    return [(event.step, event.value) for event in events.Scalars(tag)]


def texts(events, tag):
    return [(event.step, event.tensor_proto.string_val[0].decode()) for event in events.Tensors(tag)]


def pixels(file):
    """Height, width, channels and bytes of a PNG file, by Python's zlib; its checksums are checked."""
    assert file[:8] == b"\x89PNG\r\n\x1a\n", file[:8]
    at, chunks = 8, []
    while at < len(file):
        size, kind = struct.unpack(">I4s", file[at:at + 8])
        content = file[at + 8:at + 8 + size]
        assert struct.unpack(">I", file[at + 8 + size:at + 12 + size])[0] == zlib.crc32(kind + content)
        chunks.append((kind, content))
        at += 12 + size
    assert [kind for kind, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"], chunks
    width, height, bits, colour, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
    assert bits == 8 and colour in (0, 2) and rest == [0, 0, 0], chunks[0]
    channels = 1 if colour == 0 else 3
    packed, found = zlib.decompress(chunks[1][1]), b""
    for row in range(height):
        begin = row * (width * channels + 1)
        line = bytearray(packed[begin + 1:begin + 1 + width * channels])
        assert packed[begin] == 1 and len(line) == width * channels  # the filter "Sub"
        for i in range(channels, len(line)):
            line[i] = (line[i] + line[i - channels]) % 256
        found += line
    return height, width, channels, found


def check_image(events, tag, height, width, channels):
    (image,) = events.Images(tag)
    assert (image.step, image.height, image.width) == (1, height, width), image
    expected = bytes(7 * i % 256 for i in range(height * width * channels))
    assert pixels(image.encoded_image_string) == (height, width, channels, expected)
    if PIL:
        read = PIL.Image.open(io.BytesIO(image.encoded_image_string))
        assert (read.mode, read.tobytes()) == ("L" if channels == 1 else "RGB", expected)


def check_all(run):
    events = read(run)
    assert sorted(events.Tags()["images"]) == ["grey", "nested image/rgb"], events.Tags()["images"]
    check_image(events, "grey", 37, 5, 1)
    check_image(events, "nested image/rgb", 1, 300, 3)
    assert texts(events, "no image/text_summary") == [(1, "data:image/png;base64,iVBORw0KGgo=")]
    loss = scalars(events, "loss")
    assert [step for step, _ in loss] == [1, 2, 3], loss
    assert loss[0][1] == 0.5 and math.isnan(loss[1][1]) and loss[2][1] == math.inf, loss
    assert scalars(events, "count") == [(1, 3), (3, -math.inf)]
    assert scalars(events, "nested/f1") == [(1, 0.75)]
    assert scalars(events, 'a/"b"\n<script>') == [(1, 1)]
    assert scalars(events, "changes") == [(1, 1)]
    assert scalars(events, "many/9999") == [(4, 9999)]
    assert len([tag for tag in events.Tags()["scalars"] if tag.startswith("many/")]) == 10000
    assert texts(events, "words/text_summary") == [(1, "gr\u00fc\u00dfe")]
    assert texts(events, "changes/text_summary") == [(2, "now a text")]
    assert texts(events, "broken ?/text_summary") == [(1, "text ?")]
    assert texts(events, "ok/text_summary") == [(1, "true")]
    assert events.SummaryMetadata("words/text_summary").plugin_data.plugin_name == "text"
    assert events.Tags()["histograms"] == ["weights"], events.Tags()["histograms"]
    (weights,) = events.Histograms("weights")
    histogram = weights.histogram_value
    assert (histogram.min, histogram.max, histogram.num) == (-1, 3, 4), histogram
    assert histogram.sum == 2.5 and histogram.sum_squares == 10.25, histogram
    assert sum(histogram.bucket) == 4 and histogram.bucket_limit[-1] == 3, histogram
    assert not [tag for tag in events.Tags()["scalars"] if tag.startswith(("timestamp", "pid", "config"))]

    content = events.PluginTagToContent("hparams")["_hparams_/session_start_info"]
    session = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    assert session.hparams["lr"].number_value == 0.25
    assert session.hparams["deep/er"].string_value == "text"
    assert session.hparams["on"].bool_value is True
    assert session.hparams["layers"].string_value == "[1,2]"
    assert session.group_name == "r"


def check_steps(run):
    events = read(run, "tensorboard/steps")
    assert events.Tags()["scalars"] == ["loss"], events.Tags()
    expected = [(step, 100 + step) for step in range(1, 13)] + [(step, 200 + step) for step in (13, 14, 15)]
    assert scalars(events, "loss") == expected, scalars(events, "loss")


def check_as_result_json(run):
    lines = [json.loads(line) for line in (run / "result.json").read_text().splitlines()]
    expected = [(line["training_iteration"], line["loss"]) for line in lines]
    found = scalars(read(run), "loss")
    assert found == expected, f"{run}: {found}\n{expected}"


def main():
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        subprocess.run([sys.argv[1], str(place)], check=True)
        check_all(place / "all")
        check_steps(place / "steps")
        check_as_result_json(place / "restarts")
        try:  # the reader has to notice what is wrong
            file = max((place / "restarts" / "tensorboard").iterdir())
            file.write_bytes(file.read_bytes()[:-1])
            check_as_result_json(place / "restarts")
        except AssertionError:
            return 0
        print("an event file that is cut off goes unnoticed")
        return 1


if __name__ == "__main__":
    sys.exit(main())
