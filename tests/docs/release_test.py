#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether scripts/release-check accepts this tree, and notices each file that says something else.

Usage: release_test.py ROOT
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

NAMED = ["include/rtrain/version.hpp", "CMakeLists.txt", "conanfile.py", "CITATION.cff", "CHANGELOG.md",
         "docs/packages.md", "cmake/vcpkg/ports/rtrain/vcpkg.json"]


def run(root, *arguments):
    done = subprocess.run([sys.executable, ROOT / "scripts/release-check", "--root", root, *arguments],
                          capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def copy(directory):
    for name in NAMED:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, directory / name)


def check_that(names, root, *arguments):
    status, said = run(root, *arguments)
    assert status == 1 and said.startswith(names), (names, status, said)


def check_that_each_is_noticed(version):
    for name, old, new in [
            ("include/rtrain/version.hpp", "MINOR ", "MINOR 9"),
            ("CMakeLists.txt", "VERSION ${rtrain_version}", "VERSION 9.9.9"),
            ("conanfile.py", "self.version = re", "self.version = '9.9.9' or re"),
            ("CITATION.cff", f"version: {version}", "version: 9.9.9"),
            ("CHANGELOG.md", f"## [{version}]", "## [9.9.9]"),
            ("docs/packages.md", f"GIT_TAG v{version}", "GIT_TAG v9.9.9"),
            ("cmake/vcpkg/ports/rtrain/vcpkg.json", f'"version": "{version}"', '"version": "9.9.9"')]:
        with tempfile.TemporaryDirectory() as temporary:
            root = pathlib.Path(temporary)
            copy(root)
            assert run(root)[0] == 0, run(root)
            text = (root / name).read_text()
            assert old in text, f"{name} has no {old} any more"
            (root / name).write_text(text.replace(old, new, 1))
            check_that(name, root)
            (root / name).unlink()
            check_that(f"{name}: missing", root)


def check_tags(version):
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        copy(root)
        log, citation = root / "CHANGELOG.md", root / "CITATION.cff"
        heading = rf"^## \[{re.escape(version)}\] - .*$"
        log.write_text(re.sub(heading, f"## [{version}] - 2030-01-02", log.read_text(), flags=re.M))
        cited = re.sub(r"^date-released:.*\n", "", citation.read_text(), flags=re.M)
        citation.write_text(f"{cited}date-released: 2030-01-02\n")
        assert run(root, f"v{version}") == (0, f"all say {version}\n"), run(root, f"v{version}")
        check_that(f"tag {version}:", root, version)
        citation.write_text(f"{cited}date-released: 2030-01-03\n")
        check_that("CITATION.cff: 2030-01-03", root, f"v{version}")
        log.write_text(re.sub(heading, f"## [{version}] - Unreleased", log.read_text(), flags=re.M)
                       .replace("2030-01-02", "Unreleased"))
        check_that("CHANGELOG.md: the entry says 'Unreleased'", root, f"v{version}")


def main():
    status, said = run(ROOT)
    assert status == 0, said
    version = said.split()[-1]
    check_that_each_is_noticed(version)
    check_tags(version)
    print(said, end="")


if __name__ == "__main__":
    ROOT = pathlib.Path(sys.argv[1]).resolve()
    main()
