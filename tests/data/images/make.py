#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the images beside it and expected.safetensors, their pixels as Pillow 13.0.0 reads them, which
tests/unit/images_test.cpp compares with.

Usage: python3 make.py   (pip install pillow==13.0.0 numpy safetensors)
"""

import pathlib
import shutil
import struct
import zlib

import numpy
from PIL import Image
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
HEIGHT, WIDTH = 29, 37


def scene(height, width, channels):
    """Smooth slopes with an edge and some noise."""
    y, x = numpy.mgrid[0:height, 0:width] / max(height, width)
    planes = [0.5 + 0.5 * numpy.sin(3 * x + 5 * y * (i + 1) + i) for i in range(channels)]
    planes[0] = numpy.where(x + y > 0.8, planes[0], 1 - planes[0])
    noise = numpy.random.default_rng(height).normal(0, 6, (height, width, channels))
    return (numpy.stack(planes, -1) * 255 + noise).clip(0, 255).astype(numpy.uint8)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(path, width, height, bits, colour, interlaced, rows):
    """A PNG of a kind that Pillow does not write; `rows` are packed, without filters."""
    head = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, interlaced)
    data = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) +
                     chunk(b"IEND", b""))


def interlaced_rows(pixels):
    for y, x, dy, dx in ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2),
                         (0, 1, 2, 2), (1, 0, 2, 1)):
        yield from (row.tobytes() for row in pixels[y::dy, x::dx])


def write_jpeg(directory):
    rgb = Image.fromarray(scene(HEIGHT, WIDTH, 3))
    rgb.save(directory / "444.jpg", quality=90, subsampling=0)
    rgb.save(directory / "420.jpg", quality=80, subsampling=2)
    rgb.save(directory / "progressive.jpg", quality=85, progressive=True)
    rgb.convert("L").save(directory / "grey.jpg", quality=85)
    rgb.convert("CMYK").save(directory / "cmyk.jpg", quality=90)


def write_png(directory):
    pixels = scene(HEIGHT, WIDTH, 3)
    rgb = Image.fromarray(pixels)
    rgb.save(directory / "rgb.png")
    rgba = rgb.copy()
    rgba.putalpha(Image.fromarray(scene(HEIGHT, WIDTH, 1)[:, :, 0]))
    rgba.save(directory / "rgba.png")
    rgba.convert("LA").save(directory / "grey-alpha.png")
    rgb.quantize(200).save(directory / "palette.png")
    rgb.quantize(11).save(directory / "palette-4-bits.png", transparency=3)
    rgb.convert("L").save(directory / "grey.png")
    rgb.convert("1").save(directory / "1-bit.png")
    png(directory / "interlaced.png", WIDTH, HEIGHT, 8, 2, 1, interlaced_rows(pixels))
    wide = (pixels.astype(">u2") << 8) + scene(HEIGHT, WIDTH, 3)[::-1]
    png(directory / "16-bits.png", WIDTH, HEIGHT, 16, 2, 0, (row.tobytes() for row in wide.astype(">u2")))


def grey_of(path):
    image = Image.open(path)
    if image.format == "JPEG" and image.mode == "RGB":
        image.draft("L", image.size)  # the luma that is in the file
        return image
    return image.convert("L")


def planes(image):
    pixels = numpy.asarray(image)
    return numpy.ascontiguousarray(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))


def main():
    expected = {}
    for name, write in (("jpeg", write_jpeg), ("png", write_png)):
        shutil.rmtree(HERE / "kinds" / name, ignore_errors=True)
        (HERE / "kinds" / name).mkdir(parents=True)
        write(HERE / "kinds" / name)
        for path in sorted((HERE / "kinds" / name).iterdir()):
            expected[f"{name}/{path.name}"] = planes(Image.open(path).convert("RGB"))
            expected[f"{name}/{path.name}.grey"] = planes(grey_of(path))
    shutil.rmtree(HERE / "large", ignore_errors=True)
    (HERE / "large").mkdir()
    large = Image.fromarray(scene(96, 128, 3))
    large.save(HERE / "large" / "photo.jpg", quality=85)
    large.save(HERE / "large" / "photo.png", optimize=True)
    for name in ("photo.jpg", "photo.png"):
        for height, width in ((24, 32), (48, 64), (40, 40), (13, 100), (110, 90)):
            image = Image.open(HERE / "large" / name)
            if name == "photo.jpg" and 2 * height <= image.height and 2 * width <= image.width:
                scaled = Image.open(HERE / "large" / name)
                scaled.draft("RGB", (width, height))  # by 1/2 or 1/4, while it is decoded
                expected[f"scaled {height} {width}"] = planes(
                    scaled.resize((width, height), Image.BILINEAR))
            expected[f"{name} {height} {width}"] = planes(
                image.resize((width, height), Image.BILINEAR))
    save_file(expected, HERE / "expected.safetensors")
    # 60,000 pixels high and wide, as its header says.
    png(HERE / "bomb.png", 60000, 60000, 1, 0, 0, [b"\0" * 7500])


if __name__ == "__main__":
    main()
