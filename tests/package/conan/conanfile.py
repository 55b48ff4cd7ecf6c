# SPDX-License-Identifier: Apache-2.0
"""What `conan create` does with the package: the small project in ../light, on one and two ranks."""

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout

COMPONENTS = ("arrow", "https", "images", "nccl", "stacktrace")


class TestPackage(ConanFile):
    settings = "os", "arch", "compiler", "build_type"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False
        options = self.dependencies["rtrain"].options
        wanted = [part for part in COMPONENTS if options.get_safe(f"with_{part}")]
        toolchain.cache_variables["RTRAIN_COMPONENTS"] = ";".join(wanted)
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure(build_script_folder="../light")
        cmake.build()

    def test(self):
        CMake(self).ctest(["-V"])
