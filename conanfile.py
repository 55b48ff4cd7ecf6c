# SPDX-License-Identifier: Apache-2.0
"""rtrain for Conan 2: `conan create . -s compiler.cppstd=20`.

The package is headers, CMake files and a compiled library; find_package(rtrain) is rtrain's own, with
rtrain::rtrain, rtrain::compiled and the components. MPI is always that of the machine: a program and the
mpirun that starts it must be of one MPI.

  compiled      True: the package has librtrain_compiled.a, compiled for the libtorch that is found now.
                A project that has a different one compiles the sources. False: nothing is compiled.
  system_deps   True: libtorch, Boost and the rest are those of the machine, as with any other way to
                install rtrain. False: they come from Conan, and libtorch is then one without CUDA.
  with_arrow, with_https, with_images, with_nccl, with_stacktrace
                These components are wanted. What they need comes from where system_deps says (NCCL
                always from the machine), and the test of the package fails where it is missing.
"""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
from conan.tools.scm import Version

required_conan_version = ">=2.0"

OLDEST_COMPILERS = {"gcc": "12", "clang": "14"}
COMPONENTS = {
    "arrow": ["arrow/[>=15 <30]"],
    "https": ["openssl/[>=1.1.1 <4]"],
    "images": ["libjpeg-turbo/[>=2.1 <4]", "libpng/[>=1.6 <2]"],
    "nccl": [],
    "stacktrace": ["elfutils/[>=0.180 <1]"],
}
PARTS = [f"with_{component}" for component in COMPONENTS]


class RtrainConan(ConanFile):
    name = "rtrain"
    license = "Apache-2.0"
    description = "Distributed training for C++ on libtorch and MPI"
    topics = ("machine-learning", "distributed-training", "libtorch", "mpi")
    package_type = "static-library"  # with compiled=False, headers only
    settings = "os", "arch", "compiler", "build_type"
    options = {name: [True, False] for name in ("compiled", "system_deps", *PARTS)}
    default_options = {"compiled": True, "system_deps": True} | {part: False for part in PARTS}
    exports_sources = "CMakeLists.txt", "LICENSE", "cmake/*", "include/*"
    no_copy_source = True
    test_package_folder = "tests/package/conan"

    def set_version(self):
        header = load(self, os.path.join(self.recipe_folder, "include/rtrain/version.hpp"))
        self.version = re.search(r'RTRAIN_VERSION "(.*)"', header)[1]

    def requirements(self):
        if self.options.system_deps:
            return
        needed = ["libtorch/[>=2.9 <3]", "boost/[>=1.81 <2]", "zlib/[>=1.2 <2]"]
        for component, packages in COMPONENTS.items():
            if self.options.get_safe(f"with_{component}"):
                needed += packages
        for package in needed:
            self.requires(package, transitive_headers=True, transitive_libs=True)

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("rtrain is for Linux")
        check_min_cppstd(self, 20)
        oldest = OLDEST_COMPILERS.get(str(self.settings.compiler))
        if oldest and Version(self.settings.compiler.version) < oldest:
            raise ConanInvalidConfiguration(f"rtrain needs {self.settings.compiler} {oldest} or newer")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        compiled = bool(self.options.compiled)
        if compiled:
            CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False
        toolchain.cache_variables["RTRAIN_INSTALL_ONLY"] = not compiled
        toolchain.cache_variables["RTRAIN_INSTALL_COMPILED"] = compiled
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        if self.options.compiled:
            cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()

    def package_id(self):
        if not self.info.options.compiled:
            self.info.clear()
            return
        for part in PARTS:  # components are headers in any case
            delattr(self.info.options, part)

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.builddirs = ["share/cmake/rtrain"]
        self.cpp_info.set_property("cmake_find_mode", "none")  # the package brings its own
