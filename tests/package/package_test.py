# SPDX-License-Identifier: Apache-2.0
"""Packages of rtrain: what is in them, and that a project finds what it needs.

    package_test.py CASE SOURCE SCRATCH [CMAKE_ARGUMENT...]

CASE is one of the functions below; SCRATCH is deleted first. The arguments are those of a project that
uses rtrain: where libtorch is, which compiler.
"""

import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

SOURCE = Path(sys.argv[2])
SCRATCH = Path(sys.argv[3]) / "with spaces"
ARGUMENTS = sys.argv[4:]
LIGHT = SOURCE / "tests/package/light"
SKIPPED = 77
EPOCH = {"SOURCE_DATE_EPOCH": "1700000000"}  # packages are as old as this
VERSION = re.search(r'VERSION "(.*)"', (SOURCE / "include/rtrain/version.hpp").read_text())[1]


def run(*command, succeeds=True, **options):
    """What a command prints. One that fails where it should not, or the other way round, ends the test."""
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )
    if (done.returncode == 0) != succeeds:
        sys.exit(f"{command} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def files_of(directory):
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()}


def expect_same(one, other):
    """Two directories hold the same files with the same bytes."""
    assert files_of(one) == files_of(other), files_of(one) ^ files_of(other)
    _, different, errors = filecmp.cmpfiles(one, other, files_of(one), shallow=False)
    assert not different + errors, different + errors


def install(prefix):
    """Installs rtrain on a machine that has none of what its users need, not even a compiler."""
    build = SCRATCH / "install only"
    bare = EPOCH | {"PATH": os.environ["PATH"], "CXX": "/nowhere/c++", "CC": "/nowhere/cc"}
    run("cmake", "-S", SOURCE, "-B", build, "-G", "Ninja", "-DRTRAIN_INSTALL_ONLY=ON", env=bare)
    run("cmake", "--install", build, "--prefix", prefix)
    return build


def expect_package(prefix):
    """All that belongs to the package lies in PREFIX, and nothing else."""
    files = files_of(prefix)
    places = ("include/rtrain/", "share/cmake/rtrain/", "share/pkgconfig/rtrain.pc")
    assert not [file for file in files if not file.startswith(places)], files
    headers = {f"include/{file}" for file in files_of(SOURCE / "include")}
    compiled = {f"share/cmake/rtrain/compiled/{file}" for file in files_of(SOURCE / "cmake/compiled")}
    assert headers <= files and compiled <= files, (headers | compiled) - files
    for file in files:  # it may be moved, and says nothing of this machine
        text = (prefix / file).read_text()
        assert str(SOURCE) not in text and str(SCRATCH) not in text, file


def configure(name, way, *arguments, succeeds=True):
    """Configures the small project, in which rtrain comes in WAY."""
    return run(
        *("cmake", "-S", LIGHT, "-B", SCRATCH / name, "-G", "Ninja", f"-DRTRAIN_WAY={way}"),
        *ARGUMENTS,
        *arguments,
        succeeds=succeeds,
    )


def use(name, way, *arguments):
    """Builds and runs it, and looks at what it has made of rtrain: nothing."""
    build = SCRATCH / name
    configure(name, way, *arguments)
    run("cmake", "--build", build)
    said = run("ctest", "--test-dir", build, "-V")
    for expected in ("rank 0 of 1", "rank 0 of 2", "rank 1 of 2"):
        assert f"{expected}, rtrain {VERSION}\n" in said, said
    assert f"rank 1 of 2, rtrain {VERSION} and more\n" in said, said
    built = {path.name for path in build.rglob("*") if path.suffix in (".o", ".a", ".so", ".gch")}
    assert built == {"light.cpp.o"}, built
    run("cmake", "--install", build, "--prefix", build / "installed")
    assert files_of(build / "installed") == {"bin/light"}, files_of(build / "installed")


def install_only(full_install):
    """RTRAIN_INSTALL_ONLY=ON brings the same files as a build of rtrain, byte for byte."""
    prefix = SCRATCH / "prefix"
    install(prefix)
    expect_package(prefix)
    expect_same(prefix, Path(full_install))
    use("found", "installed", f"-DCMAKE_PREFIX_PATH={prefix}")
    said = configure(
        *("unknown", "installed", f"-DCMAKE_PREFIX_PATH={prefix}", "-DRTRAIN_COMPONENTS=cheese"),
        succeeds=False,
    )
    assert "rtrain has no component cheese; it has nccl, arrow, images, https" in said, said


def subdirectory():
    """rtrain added as a directory, with the component that OpenSSL brings where it is there."""
    components = [f"-DRTRAIN_COMPONENTS={part}" for part in ("https",) if has_openssl()]
    use("subdirectory", "subdirectory", f"-DRTRAIN_SOURCE={SOURCE}", *components)


def has_openssl():
    return Path("/usr/include/openssl/ssl.h").exists()


def fetched():
    """FetchContent, from a repository that holds what users need."""
    repository = SCRATCH / "repository"
    for part in ("CMakeLists.txt", "LICENSE", "cmake", "include"):
        copy = shutil.copytree if (SOURCE / part).is_dir() else shutil.copy
        repository.mkdir(parents=True, exist_ok=True)
        copy(SOURCE / part, repository / part)
    git = ("git", "-C", repository, "-c", "user.name=test", "-c", "user.email=test@localhost")
    run("git", "init", "-q", repository)
    run(*git, "add", "-A")
    run(*git, "commit", "-q", "-m", "a version")
    run(*git, "tag", f"v{VERSION}")
    use("fetched", "fetched", f"-DRTRAIN_SOURCE=file://{repository}")


def vcpkg():
    """The port, run with stand-ins for vcpkg's functions."""
    port = SOURCE / "cmake/vcpkg/ports/rtrain"
    manifest = json.loads((port / "vcpkg.json").read_text())
    assert manifest["name"] == "rtrain" and manifest["version"] == VERSION, manifest
    assert manifest["license"] == "Apache-2.0"
    config = (SOURCE / "cmake/rtrainConfig.cmake.in").read_text()
    components = re.search(r"foreach\(rtrain_file (.*)\)", config)[1].lower().split()
    assert sorted(manifest["features"]) == sorted(components), components
    for entry in [manifest, *manifest["features"].values()]:
        assert entry["description"]
        names = [part if isinstance(part, str) else part["name"] for part in entry["dependencies"]]
        assert names == sorted(names), names
    for system in (SOURCE / "cmake/vcpkg/system").iterdir():
        assert json.loads((system / "vcpkg.json").read_text())["name"] == system.name
        assert system.name in str(manifest["dependencies"])
        assert "VCPKG_POLICY_EMPTY_PACKAGE enabled" in (system / "portfile.cmake").read_text()

    packages = SCRATCH / "packages"
    run(
        *("cmake", f"-DPORT_DIRECTORY={port}", f"-DCURRENT_PACKAGES_DIR={packages}"),
        *(f"-DCURRENT_BUILDTREES_DIR={SCRATCH / 'buildtrees'}", "-DPORT=rtrain"),
        *("-P", SOURCE / "tests/package/vcpkg_stand_in.cmake"),
    )
    files = files_of(packages)
    for file in ("usage", "copyright", "rtrainConfig.cmake", "compiled/train.cpp"):
        assert f"share/rtrain/{file}" in files, files
    places = ("include/rtrain/", "share/rtrain/", "share/pkgconfig/rtrain.pc")
    assert not [file for file in files if not file.startswith(places)], files
    assert (packages / "share/rtrain/copyright").read_bytes() == (SOURCE / "LICENSE").read_bytes()
    use("from vcpkg", "installed", f"-DCMAKE_PREFIX_PATH={packages}")


def pack(name, build):
    directory = SCRATCH / name
    directory.mkdir()
    run("cpack", "--config", build / "CPackConfig.cmake", cwd=directory, env=os.environ | EPOCH)
    return directory


def cpack():
    """.deb and .tar.gz: what is in them, and that making them twice makes the same bytes."""
    prefix = SCRATCH / "prefix"
    build = install(prefix)
    packed = pack("packed", build)
    assert files_of(packed) - {f for f in files_of(packed) if f.startswith("_CPack_Packages")} == {
        f"rtrain-dev_{VERSION}_all.deb",
        f"rtrain-dev-{VERSION}.tar.gz",
    }
    with tarfile.open(packed / f"rtrain-dev-{VERSION}.tar.gz") as archive:
        archive.extractall(SCRATCH / "tar")
    unpacked = SCRATCH / "tar" / f"rtrain-{VERSION}"
    shutil.rmtree(unpacked / "share/doc")
    expect_same(unpacked, prefix)

    deb = packed / f"rtrain-dev_{VERSION}_all.deb"
    run("dpkg-deb", "-x", deb, SCRATCH / "deb")
    documents = SCRATCH / "deb/usr/share/doc"
    assert files_of(documents) == {"rtrain-dev/copyright", "rtrain-dev/changelog.gz"}
    shutil.rmtree(documents)
    expect_same(SCRATCH / "deb/usr", prefix)
    fields = run("dpkg-deb", "-f", deb)
    for field in ("Package: rtrain-dev", "Architecture: all", "libopenmpi-dev | libmpich-dev"):
        assert field in fields, fields

    shutil.rmtree(build)
    again = pack("again", install(SCRATCH / "prefix again"))
    for file in (deb.name, f"rtrain-dev-{VERSION}.tar.gz"):
        assert (packed / file).read_bytes() == (again / file).read_bytes(), file


def lintian():
    """Debian's own reader finds nothing to say about rtrain-dev."""
    if not shutil.which("lintian"):
        skip("lintian is not installed (apt-get install lintian)")
    packed = pack("packed", install(SCRATCH / "prefix"))
    command = ("lintian", "--tag-display-limit", "5", "--fail-on", "error,warning,info,pedantic", "-I")
    said = run(*command, *packed.glob("*.deb"))
    assert not re.search("^[A-Z]: ", said, re.M), said


def pkg_config():
    """A program compiled with what pkg-config says."""
    if not shutil.which("pkg-config"):
        skip("pkg-config is not installed (apt-get install pkg-config)")
    SCRATCH.mkdir()
    prefix = SCRATCH.parent / "prefix"  # pkg-config escapes spaces, which this test would have to undo
    install(prefix)
    os.environ["PKG_CONFIG_PATH"] = str(prefix / "share/pkgconfig")
    torch = Path(next(a for a in ARGUMENTS if a.startswith("-DTorch_DIR=")).split("=")[1]).parents[2]
    flags = run("pkg-config", f"--define-variable=torch={torch}", "--cflags", "--libs", "rtrain")
    assert run("pkg-config", "--modversion", "rtrain").strip() == VERSION
    program = SCRATCH / "light"
    run("mpicxx", LIGHT / "light.cpp", "-o", program, *flags.split())
    assert run(program) == f"rank 0 of 1, rtrain {VERSION}\n"
    assert "libtorch_cpu.so" in run("ldd", program)


def conan():
    """conan create, with the project in test_package/ on two ranks."""
    beside = Path(sys.executable).with_name("conan")  # as pip puts it
    found = beside if beside.exists() else shutil.which("conan")
    if not found:
        skip("conan is not installed (pip install conan)")
    SCRATCH.mkdir()
    os.environ["CONAN_HOME"] = str(SCRATCH / "conan home")
    run(found, "profile", "detect", cwd=SCRATCH)
    torch = next(a for a in ARGUMENTS if a.startswith("-DTorch_DIR=")).split("=")[1]
    os.environ["Torch_DIR"] = torch
    places = ("--no-remote", "-c", "tools.cmake.cmake_layout:test_folder=$TMP")
    said = run(found, "create", SOURCE, "-s", "compiler.cppstd=20", *places, cwd=SCRATCH)
    assert "100% tests passed, 0 tests failed out of 3" in said, said
    old = run(
        *(found, "create", SOURCE, "-s", "compiler.cppstd=17", *places),
        cwd=SCRATCH,
        succeeds=False,
    )
    assert "Current cppstd (17) is lower than the required C++ standard (20)" in old, old


def skip(why):
    print(why)
    sys.exit(SKIPPED)


if __name__ == "__main__":
    shutil.rmtree(SCRATCH.parent, ignore_errors=True)
    SCRATCH.parent.mkdir(parents=True)
    CASES = (install_only, subdirectory, fetched, vcpkg, cpack, lintian, pkg_config, conan)
    extra = [word.split("=", 1)[1] for word in ARGUMENTS if word.startswith("--full-install=")]
    ARGUMENTS = [word for word in ARGUMENTS if not word.startswith("--full-install=")]
    {case.__name__: case for case in CASES}[sys.argv[1]](*extra)
