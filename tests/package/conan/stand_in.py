# SPDX-License-Identifier: Apache-2.0
"""Plays packages of Conan with what this machine has: conan create stand_in.py --name zlib --version 1.2.13.
They look to a project as the public ones do."""

import os

from conan import ConanFile


class StandIn(ConanFile):
    def package_info(self):
        self.cpp_info.includedirs = []
        self.cpp_info.libdirs = []
        getattr(self, self.name)(self.cpp_info)

    def libtorch(self, info):
        torch = os.environ["STAND_IN_TORCH"]
        info.set_property("cmake_file_name", "Torch")  # its target is libtorch::libtorch
        info.includedirs = [f"{torch}/include", f"{torch}/include/torch/csrc/api/include"]
        info.libdirs = [f"{torch}/lib"]
        info.libs = ["torch", "torch_cpu", "c10"]

    def boost(self, info):
        info.set_property("cmake_file_name", "Boost")
        for part in ("headers", "json", "url"):
            info.components[part].set_property("cmake_target_name", f"Boost::{part}")
            info.components[part].includedirs = info.components[part].libdirs = []
        for part in ("json", "url"):
            info.components[part].system_libs = [f"boost_{part}"]
            info.components[part].requires = ["headers"]

    def zlib(self, info):
        info.set_property("cmake_file_name", "ZLIB")
        info.set_property("cmake_target_name", "ZLIB::ZLIB")
        info.system_libs = ["z"]
