# SPDX-License-Identifier: Apache-2.0
"""Packages of rtrain: what is in them, and that a project finds what it needs.

    package_test.py CASE SOURCE SCRATCH [CMAKE_ARGUMENT...]

CASE is one of the functions below; SCRATCH is deleted first. The arguments are those of a project that
uses rtrain: where libtorch is, which compiler.
"""

import filecmp
import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

SOURCE = Path(sys.argv[2])
SCRATCH = Path(sys.argv[3]) / "with spaces"
ARGUMENTS = sys.argv[4:]
LIGHT = SOURCE / "tests/package/light"
PAGE = (SOURCE / "docs/packages.md").read_text()
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


def block(heading, language):
    """The first block of a language below a heading of docs/packages.md."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.search(f"```{language}\n(.*?)```", section, re.S)[1]


def file_with(text):
    file = SCRATCH / f"block {sum(1 for _ in SCRATCH.glob('block *'))}.cmake"
    file.write_text(text)
    return file


def files_of(directory):
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()}


def expect_same(one, other):
    """Two directories hold the same files with the same bytes."""
    assert files_of(one) == files_of(other), files_of(one) ^ files_of(other)
    _, different, errors = filecmp.cmpfiles(one, other, files_of(one), shallow=False)
    assert not different + errors, different + errors


def copied_source():
    """What users need of rtrain's directory, which its own tests must not write to."""
    copy = SCRATCH / "source"
    if not copy.exists():
        copy.mkdir(parents=True)
        for part in ("CMakeLists.txt", "LICENSE", "cmake", "include"):
            (shutil.copytree if (SOURCE / part).is_dir() else shutil.copy)(SOURCE / part, copy / part)
    return copy


def install():
    """Installs rtrain on a machine that has none of what its users need, not even a compiler."""
    bare = {"PATH": os.environ["PATH"], "CXX": "/nowhere/c++", "HOME": str(SCRATCH)}
    run("bash", "-ec", block("Install, then find_package", "sh"), cwd=copied_source(), env=bare)
    return SCRATCH / "rtrain"


def expect_package(prefix):
    """All that belongs to the package lies in PREFIX, and nothing else."""
    files = files_of(prefix)
    places = ("include/rtrain/", "share/cmake/rtrain/", "share/pkgconfig/rtrain.pc")
    assert not [file for file in files if not file.startswith(places)], files
    headers = {f"include/{file}" for file in files_of(SOURCE / "include")}
    sources = {
        f"share/cmake/rtrain/{part}/{file}"
        for part in ("compiled", "module")
        for file in files_of(SOURCE / "cmake" / part)
    }
    assert headers <= files and sources <= files, (headers | sources) - files
    for file in files:  # it may be moved, and says nothing of this machine
        assert str(SCRATCH) not in (prefix / file).read_text(), file


def configure(name, way, *arguments, succeeds=True):
    """Configures the small project; WAY is the page's CMake by which rtrain comes."""
    return run(
        *("cmake", "-S", LIGHT, "-B", SCRATCH / name, "-G", "Ninja"),
        f"-DRTRAIN_WAY={file_with(way)}",
        f"-DRTRAIN_TESTS={file_with(block('Tests on ranks', 'cmake'))}",
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
    for rank in ("0 of 1", "0 of 2", "1 of 2"):
        assert f"rank {rank}, rtrain {VERSION}\n" in said, said
    assert f"rank 1 of 2, rtrain {VERSION} --epochs 1\n" in said, said
    built = {path.name for path in build.rglob("*") if path.suffix in (".o", ".a", ".so", ".gch")}
    assert built == {"main.cpp.o"}, built
    libraries = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", build / "train"))
    assert libraries[0] == "libstdc++.so.6", f"libtorch could replace parts of libstdc++: {libraries}"
    run("cmake", "--install", build, "--prefix", build / "installed")
    assert files_of(build / "installed") == {"bin/train"}, files_of(build / "installed")


def install_only(full_install):
    """RTRAIN_INSTALL_ONLY=ON brings the same files as a build of rtrain, byte for byte."""
    prefix = install()
    expect_package(prefix)
    full = shutil.copytree(full_install, SCRATCH / "full")
    shutil.rmtree(full / "bin", ignore_errors=True)  # tools
    expect_same(prefix, full)
    moved = prefix.rename(SCRATCH / "moved")
    found = f"-DCMAKE_PREFIX_PATH={moved}"
    use("found", block("Install, then find_package", "cmake"), found)
    said = configure("unknown", "find_package(rtrain REQUIRED COMPONENTS c)", found, succeeds=False)
    assert "rtrain has no component c; it has core, nccl, arrow, images, https, stacktrace, xgboost, lightgbm, module" in " ".join(said.split()), said
    said = configure("make", block("Components", "cmake").replace("https", "module"), found, "-G",
                     "Unix Makefiles", succeeds=False)
    assert "rtrain's component module needs" in said and "the generator Ninja" in said, said
    if "GNU" in said:  # which cannot do modules as CMake wants them
        assert "clang 16 or later (CMAKE_CXX_COMPILER is GNU" in " ".join(said.split()), said
    said = run("cmake", "-S", SOURCE, "-B", SCRATCH / "both", "-DRTRAIN_INSTALL_ONLY=ON",
               "-DRTRAIN_INSTALL_COMPILED=ON", succeeds=False)
    assert "RTRAIN_INSTALL_ONLY compiles nothing, but RTRAIN_INSTALL_COMPILED" in " ".join(said.split()), said
    if has_openssl():
        configure("components", block("Components", "cmake"), found, "-DRTRAIN_COMPONENTS=https")


def compiled(build):
    """A project that has the same libtorch, MPI and compiler as a build of rtrain links the library of that build.
    For other projects, one line names the difference, and they compile the sources."""
    prefix = install()
    run("cmake", "--install", build, "--component", "compiled", "--prefix", prefix)
    library = prefix / "lib/librtrain_compiled.a"
    record = prefix / "share/cmake/rtrain/rtrainCompiledLibrary.cmake"
    recorded = record.read_text()
    for file in (record, prefix / "share/pkgconfig/rtrain-compiled.pc"):
        assert not [path for path in (build, str(SOURCE), str(SCRATCH)) if path in file.read_text()], file
    moved = prefix.rename(SCRATCH / "moved with library")
    library, record = (moved / file.relative_to(prefix) for file in (library, record))
    found = f"-DCMAKE_PREFIX_PATH={moved}"
    way = block("Install, then find_package", "cmake")

    def news(name, *arguments, succeeds=True):
        said = configure(name, way, *arguments, found, succeeds=succeeds)
        lines = [line for line in said.splitlines() if line.startswith("-- rtrain::compiled")]
        return lines[0] if succeeds and len(lines) == 1 else (lines if succeeds else " ".join(said.split()))

    assert news("same") == f"-- rtrain::compiled is {library}"
    assert news("same") == [], "said twice"
    torch, mpi = re.search('built_for "(.*)"', recorded)[1].split(";")[:2]

    def expect_misfit(name, theirs, ours, *arguments):
        """One line; with RTRAIN_COMPILE_SOURCES=OFF, one error."""
        reason = f"rtrain::compiled: {library} was compiled for {theirs}, but this project has {ours}"
        said = news(name, *arguments)
        assert said.startswith(f"-- {reason}, so the first program") and said.endswith("[RT-C44]"), said
        said = news(f"{name}, strict", "-DRTRAIN_COMPILE_SOURCES=OFF", *arguments, succeeds=False)
        assert f"{reason}; install rtrain with" in said and "[RT-C44]" in said, said
        assert said.count("CMake Error") == 1, said

    record.write_text(recorded.replace(torch, "libtorch 2.8"))
    expect_misfit("another libtorch was", "libtorch 2.8", torch)
    record.write_text(recorded.replace(mpi, "Another MPI 1"))
    expect_misfit("another MPI was", "Another MPI 1", mpi)
    record.write_text(recorded)
    other = SCRATCH / "torch 2.8"
    other.mkdir()
    (other / "TorchConfig.cmake").write_text("add_library(torch INTERFACE IMPORTED)\nset(Torch_FOUND TRUE)\n")
    (other / "TorchConfigVersion.cmake").write_text(
        "set(PACKAGE_VERSION 2.8.0)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n"
    )
    expect_misfit("another libtorch is", torch, "libtorch 2.8", f"-DTorch_DIR={other}")
    flag = "-fsanitize=address"
    expect_misfit("checked", "no flags that change the ABI", flag, f"-DCMAKE_CXX_FLAGS={flag}")
    assert "the first program that links it" in news("wanted", "-DRTRAIN_COMPILE_SOURCES=ON")

    # Without CMake, the compiler says it before the linker can.
    include = torch_directory() / "include"
    command = [compiler(), "-std=c++20", "-fsyntax-only", f"-I{moved}/include", f"-I{include}"]
    command += [f"-I{include}/torch/csrc/api/include", "-include", "rtrain/base/compiled_for.hpp"]
    command += ["-x", "c++", "/dev/null"]
    defined = ["-D" + name for name in re.findall(r"RTRAIN_COMPILED_LIBTORCH_M[A-Z]+=\d+", recorded)]
    run(*command, *defined)
    said = run(*command, "-DRTRAIN_COMPILED_LIBTORCH_MAJOR=2", "-DRTRAIN_COMPILED_LIBTORCH_MINOR=8", succeeds=False)
    assert "compiled for libtorch 2.8, but this program is compiled with " + torch in said, said
    assert said.count("error:") == 1 and "[RT-C44]" in said, said

    # A program compiles its own files, and a precompiled header if it likes.
    project = SCRATCH / "consumer"
    run("cmake", "-S", SOURCE / "tests/package/consumer", "-B", project, "-G", "Ninja", *ARGUMENTS, found)
    run("cmake", "--build", project, "--target", "consumer_compiled")
    built = {path.name for path in project.rglob("*.cpp.o")}
    assert built == {"main.cpp.o", "other.cpp.o", "precompiled.cpp.o"}, built
    assert not list(project.rglob("*.a"))
    said = run(project / "consumer_compiled", SCRATCH / "results")
    assert "weight 2.0" in said, said

    run("cpack", "--config", Path(build) / "CPackConfig.cmake", "-G", "DEB", "-D", "CPACK_COMPONENTS_ALL=compiled",
        cwd=SCRATCH)
    (deb,) = SCRATCH.glob("*.deb")
    assert deb.name.startswith(f"rtrain-compiled-dev_{VERSION}_") and "_all" not in deb.name, deb
    assert run("dpkg-deb", "-f", deb, "Depends").strip() == f"rtrain-dev (= {VERSION})"
    run("dpkg-deb", "-x", deb, SCRATCH / "deb")
    documents = {f"share/doc/rtrain-compiled-dev/{file}" for file in ("copyright", "changelog.gz")}
    installed = {str(library.relative_to(moved)), str(record.relative_to(moved)), "share/pkgconfig/rtrain-compiled.pc"}
    assert files_of(SCRATCH / "deb/usr") == installed | documents, files_of(SCRATCH / "deb")

    header = moved / "include/rtrain/version.hpp"
    header.write_text(header.read_text() + "// changed\n")
    said = news("other headers")
    assert "was compiled from other headers than those installed with it, so" in said, said


def library_directories(package):
    """Where pip has put a package's library, for this Python and next to libtorch."""
    places = [Path(found.origin).parent] if (found := importlib.util.find_spec(package)) else []
    torch = [word.split("=", 1)[1] for word in ARGUMENTS if word.startswith("-DTorch_DIR=")]
    places += [Path(torch[0]).parents[3] / package] if torch else []
    return [str(place / "lib") for place in places]


def missing():
    """What is not there is one message that says how to get it."""
    found = f"-DCMAKE_PREFIX_PATH={install()}"
    for package, component, answer in (
        ("Torch", "", "rtrain needs Torch, which was not found. Install it with pip install torch"),
        ("MPI", "", "rtrain needs MPI, which was not found. Install it with apt-get install"),
        ("Boost", "", "rtrain needs Boost, which was not found. Install it with apt-get install"),
        ("ZLIB", "", "rtrain needs ZLIB, which was not found. Install it with apt-get install"),
        ("PNG", "images", "rtrain's component images needs libpng (apt-get install libpng-dev"),
        ("OpenSSL", "https", "rtrain's component https needs OpenSSL 1.1.1 or later (apt-get install"),
    ):
        way = f"find_package(rtrain 0.1 REQUIRED COMPONENTS {component})"
        lacking = f"-DCMAKE_DISABLE_FIND_PACKAGE_{package}=ON"
        said = configure(f"without {package}", way, found, lacking, succeeds=False)
        words = " ".join(said.split())
        assert answer in words or (package == "PNG" and "TurboJPEG" in words), said
        assert words.count("CMake Error") == 1, said
    for library, package in (("XGBoost", "xgboost-cpu"), ("LightGBM", "lightgbm")):
        name = library.lower()
        hidden = f"-DCMAKE_IGNORE_PATH={';'.join(library_directories(name))}"
        way = f"find_package(rtrain 0.1 REQUIRED COMPONENTS {name})"
        said = configure(f"without {library}", way, found, hidden, succeeds=False)
        words = " ".join(said.split())
        answer = f"rtrain's component {name} needs {library} (pip install {package}, or set {library}_ROOT)"
        assert answer in words and words.count("CMake Error") == 1, said
    later = configure("later", "find_package(rtrain 0.2 REQUIRED)", found, succeeds=False)
    assert 'compatible with requested version "0.2"' in " ".join(later.split()), later


def too_old():
    """What is there, but cannot do, is one message that says so, and how to get another."""
    torch = SCRATCH / "torch"
    torch.mkdir()
    config, version = torch / "TorchConfig.cmake", torch / "TorchConfigVersion.cmake"
    config.write_text("add_library(torch INTERFACE IMPORTED)\nset(Torch_FOUND TRUE)\n")
    version.write_text("set(PACKAGE_VERSION 2.6.0)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
    found = [f"-DCMAKE_PREFIX_PATH={install()}", f"-DTorch_DIR={torch}"]
    way = block("Install, then find_package", "cmake")

    def refused(name, *arguments):
        words = " ".join(configure(name, way, *found, *arguments, succeeds=False).split())
        assert words.count("CMake Error") == 1, words
        return words

    said = refused("old torch")
    assert "rtrain needs libtorch 2.7 or newer; the one in" in said and "is 2.6.0. Install a newer one" in said, said
    version.write_text(version.read_text().replace("2.6.0", "2.8.0"))
    config.write_text(config.read_text() + 'set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")\n')
    said = refused("old ABI")
    assert "rtrain needs a libtorch of the C++11 ABI" in said, said
    said = refused("old language", "-DCMAKE_CXX_FLAGS=-Wall -std=c++17")
    assert "rtrain needs C++20, but CMAKE_CXX_FLAGS has -std=c++17; leave it out" in said, said
    for compiler, answer in (("GNU;11.4.0", "g++ 12"), ("Clang;13.0.1", "clang++ 14")):
        identity, number = compiler.split(";")
        what = f"-DCMAKE_CXX_COMPILER_ID={identity}", f"-DCMAKE_CXX_COMPILER_VERSION={number}"
        said = run("cmake", *what, "-P", SOURCE / "cmake/rtrainCompiler.cmake", succeeds=False)
        expected = f"rtrain needs {answer} or newer, for C++20; CMAKE_CXX_COMPILER is {number}"
        assert expected in " ".join(said.split()), said
    run("cmake", "-DCMAKE_CXX_COMPILER_ID=GNU", "-DCMAKE_CXX_COMPILER_VERSION=12.2.0", "-P",
        SOURCE / "cmake/rtrainCompiler.cmake")


def cuda_build():
    """A CUDA build of libtorch: its TorchConfig.cmake is an error on a machine without a CUDA toolkit."""
    torch = SCRATCH / "torch"
    package = torch / "share/cmake/Torch"
    for directory in (package, torch / "lib", torch / "include/torch/csrc/api/include"):
        directory.mkdir(parents=True)
    for name in ("torch", "torch_cpu", "torch_cuda", "c10"):
        (torch / f"lib/lib{name}.so").touch()
    (package / "TorchConfig.cmake").write_text('message(FATAL_ERROR "no CUDA libraries")\n')
    (package / "TorchConfigVersion.cmake").write_text("set(PACKAGE_VERSION 2.13.0)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
    found, way = f"-DCMAKE_PREFIX_PATH={install()}", block("Install, then find_package", "cmake")
    for name, where in (("by directory", f"-DTorch_DIR={package}"),
                        ("by prefix", f"-DCMAKE_PREFIX_PATH={SCRATCH / 'rtrain'};{torch}")):
        unset = [] if "Torch_DIR" in where else ["-UTorch_DIR"]
        said = configure(name, way, found, *unset, where, "-DRTRAIN_NVCC=OFF")
        assert f"libtorch in {torch} is a CUDA build, and no CUDA toolkit was found" in said, said


def options():
    """rtrain configures with every combination of its options."""
    names = ["TESTS", "EXAMPLES", "BENCHMARKS"]
    with tempfile.TemporaryDirectory() as trees:  # outside of rtrain's own build
        for chosen in itertools.product(("ON", "OFF"), repeat=4):
            install, *built = chosen
            run("cmake", "-S", SOURCE, "-B", f"{trees}/{'-'.join(chosen)}", "-G", "Ninja", *ARGUMENTS,
                f"-DRTRAIN_INSTALL={install}", *(f"-DRTRAIN_BUILD_{n}={on}" for n, on in zip(names, built)))
        run("cmake", "-S", SOURCE, "-B", f"{trees}/compiled", "-G", "Ninja", *ARGUMENTS, "-DRTRAIN_INSTALL_COMPILED=ON")
    # RTRAIN_INSTALL_ONLY is what install() configures, also with RTRAIN_INSTALL_COMPILED.


def nccl_headers():
    """pip's package of cuda_runtime.h lacks what that includes: the component nccl is missing, and says why."""
    cuda, nccl = SCRATCH / "cuda/include", SCRATCH / "nccl"
    for directory in (cuda, nccl / "include", nccl / "lib"):
        directory.mkdir(parents=True)
    (cuda / "cuda_runtime.h").write_text('#include "crt/host_config.h"\nenum { cudaSuccess };\n')
    (nccl / "include/nccl.h").write_text("enum { ncclSuccess };\n")
    (nccl / "lib/libnccl.so.2").touch()
    found = [f"-DCMAKE_PREFIX_PATH={install()}", f"-DNCCL_ROOT={nccl}", f"-DCUDAToolkit_ROOT={cuda.parent}"]
    way = "find_package(rtrain REQUIRED COMPONENTS nccl)"
    words = " ".join(configure("headers", way, *found, succeeds=False).split())
    assert "crt/host_config.h: No such file" in words and "nvidia-cuda-crt nvidia-cuda-cccl" in words, words
    (cuda / "crt").mkdir()
    (cuda / "crt/host_config.h").touch()
    configure("headers", way, *found)  # after that package was installed


def subdirectory():
    """rtrain added as a directory, with the component that OpenSSL brings where it is there."""
    components = ["-DRTRAIN_COMPONENTS=https"] if has_openssl() else []
    way = block("A subdirectory", "cmake")
    use("subdirectory", way, f"-DRTRAIN_DIRECTORY={SOURCE}", *components)


def core():
    """A program that needs neither libtorch nor MPI, where CMake finds neither; and what it does need."""
    found = f"-DCMAKE_PREFIX_PATH={install()}"
    arguments = [argument for argument in ARGUMENTS if "Torch_DIR" not in argument]
    command = ("cmake", "-S", SOURCE / "tests/package/core", "-G", "Ninja", found, *arguments)
    lacking = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{package}=ON" for package in ("Torch", "MPI")]
    run(*command, "-B", SCRATCH / "core", *lacking)
    run("cmake", "--build", SCRATCH / "core")
    said = run(SCRATCH / "core/core").splitlines()
    assert sorted(said[:2]) == ["[rank 0] hello", "[rank 1] hello"] and said[2:] == ["attempt 1 of run 7"], said
    libraries = run("readelf", "-d", SCRATCH / "core/core")
    assert "torch" not in libraries and "mpi" not in libraries, libraries
    said = run(*command, "-B", SCRATCH / "bare", "-DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON", succeeds=False)
    assert "rtrain needs Boost, which was not found" in " ".join(said.split()), said


def has_openssl():
    return Path("/usr/include/openssl/ssl.h").exists()


def fetched():
    """FetchContent, from a repository that holds what users need."""
    repository = copied_source()
    git = ("git", "-C", repository, "-c", "user.name=test", "-c", "user.email=test@localhost")
    run("git", "init", "-q", repository)
    run(*git, "add", "-A")
    run(*git, "commit", "-q", "-m", "a version")
    run(*git, "tag", f"v{VERSION}")
    use("fetched", block("FetchContent", "cmake"), f"-DRTRAIN_REPOSITORY=file://{repository}")


def mpi_test():
    """What rtrain_add_mpi_test says about arguments that make no sense."""
    for arguments, answer in {
        "x": "takes RANKS <number>..., COMMAND and TIMEOUT",
        "x RANKS 2 TIMES 3": "RANKS are numbers from 1, not TIMES",
        "x RANKS 0": "RANKS are numbers from 1, not 0",
        "x 2": "takes RANKS <number>..., COMMAND and TIMEOUT; it was given: 2",
    }.items():
        text = f"include({SOURCE}/cmake/rtrainMpiTest.cmake)\nrtrain_add_mpi_test({arguments})"
        said = run("cmake", "-P", file_with(text), succeeds=False)
        assert answer in " ".join(said.split()), said


def vcpkg():
    """The port, run with stand-ins for vcpkg's functions."""
    port = SOURCE / "cmake/vcpkg/ports/rtrain"
    manifest = json.loads((port / "vcpkg.json").read_text())
    assert manifest["name"] == "rtrain" and manifest["version"] == VERSION, manifest
    assert manifest["license"] == "Apache-2.0"
    config = (SOURCE / "cmake/rtrainConfig.cmake.in").read_text()
    components = re.search(r"foreach\(rtrain_file (.*)\)", config)[1].lower().split()
    for name in ("module", "xgboost", "lightgbm"):  # needs no package; pip's
        components.remove(name)
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
    for directory in re.findall("--overlay-ports=(\\S+)", block("vcpkg", "sh")):
        assert list((SOURCE / directory).glob("*/portfile.cmake")), directory
    files = files_of(packages)
    for file in ("usage", "copyright", "rtrainConfig.cmake", "compiled/train.cpp"):
        assert f"share/rtrain/{file}" in files, files
    places = ("include/rtrain/", "share/rtrain/", "share/pkgconfig/rtrain.pc")
    assert not [file for file in files if not file.startswith(places)], files
    assert (packages / "share/rtrain/copyright").read_bytes() == (SOURCE / "LICENSE").read_bytes()
    configure("from vcpkg", block("Install, then find_package", "cmake"), f"-DCMAKE_PREFIX_PATH={packages}")


def pack():
    """The packages that the page's commands make of rtrain."""
    directory = copied_source()
    run("bash", "-ec", block("Debian packages and archives", "sh"), cwd=directory, env=os.environ | EPOCH)
    packages = {file.name: file.read_bytes() for file in directory.glob("rtrain-*")}
    assert set(packages) == {f"rtrain-dev_{VERSION}_all.deb", f"rtrain-dev-{VERSION}.tar.gz"}, packages
    assert not [name for name in packages if f"`{name}`" not in PAGE], "the page names another version"
    return directory / f"rtrain-dev_{VERSION}_all.deb", directory / f"rtrain-dev-{VERSION}.tar.gz"


def cpack():
    """.deb and .tar.gz: what is in them, and that making them twice makes the same bytes."""
    deb, archive = pack()
    prefix = install()
    with tarfile.open(archive) as opened:
        opened.extractall(SCRATCH / "tar")
    unpacked = SCRATCH / "tar" / f"rtrain-{VERSION}"
    shutil.rmtree(unpacked / "share/doc")
    expect_same(unpacked, prefix)

    run("dpkg-deb", "-x", deb, SCRATCH / "deb")
    documents = SCRATCH / "deb/usr/share/doc"
    assert files_of(documents) == {"rtrain-dev/copyright", "rtrain-dev/changelog.gz"}
    shutil.rmtree(documents)
    expect_same(SCRATCH / "deb/usr", prefix)
    fields = run("dpkg-deb", "-f", deb)
    for field in ("Package: rtrain-dev", "Architecture: all", "libopenmpi-dev | libmpich-dev"):
        assert field in fields, fields

    before = deb.read_bytes(), archive.read_bytes()
    shutil.rmtree(copied_source())
    deb, archive = pack()
    assert before == (deb.read_bytes(), archive.read_bytes())


def tools(build):
    """rtrain-tools of a build of rtrain: its programs, which run."""
    config = Path(build) / "CPackConfig.cmake"
    run("cpack", "--config", config, "-G", "DEB", "-D", "CPACK_COMPONENTS_ALL=tools", cwd=SCRATCH)
    (deb,) = SCRATCH.glob("*.deb")
    assert deb.name.startswith(f"rtrain-tools_{VERSION}_"), deb
    run("dpkg-deb", "-x", deb, SCRATCH / "deb")
    names = ("doctor", "checkpoint", "report", "sync")
    documents = {f"share/doc/rtrain-tools/{file}" for file in ("copyright", "changelog.gz")}
    files = files_of(SCRATCH / "deb/usr")
    assert files == {"bin/rtrain"} | {f"bin/rtrain-{name}" for name in names} | documents, files
    assert run(SCRATCH / "deb/usr/bin/rtrain", "--version") == f"rtrain {VERSION}\n"
    for name in names[1:]:
        assert "usage: " in run(SCRATCH / f"deb/usr/bin/rtrain-{name}", succeeds=False), name


def lintian():
    """Debian's own reader finds nothing to say about rtrain-dev."""
    if not shutil.which("lintian"):
        skip("lintian is not installed (apt-get install lintian)")
    deb, _ = pack()
    command = ("lintian", "--tag-display-limit", "5", "--fail-on", "error,warning,info,pedantic", "-I")
    said = run(*command, deb)
    assert not re.search("^[A-Z]: ", said, re.M), said


def torch_directory():
    return Path(next(a for a in ARGUMENTS if a.startswith("-DTorch_DIR=")).split("=")[1]).parents[2]


def compiler():
    return next((a for a in ARGUMENTS if a.startswith("-DCMAKE_CXX_COMPILER=")), "=c++").split("=", 1)[1]


def pkg_config():
    """A program compiled with what pkg-config says."""
    if not shutil.which("pkg-config"):
        skip("pkg-config is not installed (apt-get install pkg-config)")
    prefix = shutil.move(install(), SCRATCH.parent / "prefix")  # the command does not quote
    environment = os.environ | {"PKG_CONFIG_PATH": f"{prefix}/share/pkgconfig", "TORCH": str(torch_directory())}
    assert run("pkg-config", "--modversion", "rtrain", env=environment).strip() == VERSION
    shutil.copy(LIGHT / "main.cpp", SCRATCH)
    run("bash", "-ec", block("pkg-config", "sh"), cwd=SCRATCH, env=environment)
    program = SCRATCH / "train"
    assert run(program) == f"rank 0 of 1, rtrain {VERSION}\n"
    assert "libtorch_cpu.so" in run("ldd", program)


def newest(name, suffixes, oldest, *beside):
    """A program that says that its version is at least `oldest`; None: there is none."""
    for path in (*beside, *(shutil.which(f"{name}{suffix}") for suffix in suffixes)):
        if path and Path(path).exists():
            version = re.search(r"version (\d+)\.(\d+)", run(path, "--version"))
            if version and (int(version[1]), int(version[2])) >= oldest:
                return path
    return None


def module():
    """import rtrain, with clang and a CMake that can do it."""
    cmake = newest("cmake", [""], (3, 28), Path(sys.executable).with_name("cmake"))  # as pip puts it
    clang = newest("clang++", ["", *(f"-{number}" for number in range(25, 15, -1))], (16, 0))
    if not cmake or not clang:
        skip("needs CMake 3.28 (pip install cmake) and clang 16 (apt-get install clang-19 clang-tools-19)")
    project = SCRATCH / "line"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(block("The module", "cmake"))
    (project / "line.cpp").write_text(block("The module", "cpp"))
    command = block("The module", "sh").replace("cmake ", f"'{cmake}' ").replace("clang++-19", str(clang))
    prefix = f'-DCMAKE_PREFIX_PATH="{install()}" -DTorch_DIR="{torch_directory()}/share/cmake/Torch"'
    run("bash", "-ec", command.replace("-G Ninja", f"-G Ninja {prefix}"), cwd=project)
    said = run(project / "build/line", cwd=project)
    assert "weight 2.0" in said, said


def conan():
    """conan create, with the project in test_package/ on two ranks; once with the compiled library."""
    beside = Path(sys.executable).with_name("conan")  # as pip puts it
    found = beside if beside.exists() else shutil.which("conan")
    if not found:
        skip("conan is not installed (pip install conan)")
    os.environ["CONAN_HOME"] = str(SCRATCH / "conan home")
    os.environ["Torch_DIR"] = f"{torch_directory()}/share/cmake/Torch"
    run(found, "profile", "detect")
    headers = ("-o", "rtrain/*:compiled=False")  # compiles nothing
    places = ("--no-remote", "-c", "tools.cmake.cmake_layout:test_folder=$TMP")
    command = block("Conan", "sh").split()
    said = run(found, *command[1:], *places, cwd=SOURCE)
    assert "100% tests passed, 0 tests failed out of 2" in said, said
    assert re.search("^-- rtrain::compiled is /.*/librtrain_compiled.a$", said, re.M), said

    os.environ["STAND_IN_TORCH"] = str(torch_directory())
    stand_in = SOURCE / "tests/package/conan/stand_in.py"
    for name in ("libtorch/2.9.1", "boost/1.81.0", "zlib/1.2.13"):
        name, version = name.split("/")
        run(found, "create", stand_in, "--name", name, "--version", version, "--no-remote")
    del os.environ["Torch_DIR"]
    said = run(found, *command[1:], "-o", "rtrain/*:system_deps=False", *headers, *places, cwd=SOURCE)
    assert "100% tests passed, 0 tests failed out of 2" in said, said

    command[-1] = "compiler.cppstd=17"
    said = run(found, *command[1:], *places, cwd=SOURCE, succeeds=False)
    assert "Current cppstd (17) is lower than the required C++ standard (20)" in said, said


def skip(why):
    print(why)
    sys.exit(SKIPPED)


if __name__ == "__main__":
    shutil.rmtree(SCRATCH.parent, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    CASES = [install_only, compiled, subdirectory, fetched, missing, too_old, cuda_build, options, nccl_headers]
    CASES += [core, mpi_test, vcpkg, cpack, tools, lintian, pkg_config, module, conan]
    extra = [word.split("=", 1)[1] for word in ARGUMENTS if word.startswith("--of=")]
    ARGUMENTS = [word for word in ARGUMENTS if not word.startswith("--of=")]
    {case.__name__: case for case in CASES}[sys.argv[1]](*extra)
