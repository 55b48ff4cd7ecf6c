# SPDX-License-Identifier: Apache-2.0
# The target torch: from CMAKE_PREFIX_PATH or Torch_DIR, else inside the pip package of the first python3.

# rtrain_use_cpu_part(): pip's libtorch for x86-64 is a CUDA build, and its TorchConfig.cmake is an error on a
# machine without a CUDA toolkit. There, torch is the part for CPUs, which needs none. Does nothing elsewhere.
macro(rtrain_use_cpu_part)
  string(REPLACE ":" ";" rtrain_torch_prefixes "$ENV{CMAKE_PREFIX_PATH}")
  foreach(rtrain_prefix IN LISTS Torch_DIR CMAKE_PREFIX_PATH rtrain_torch_prefixes)
    foreach(rtrain_directory "${rtrain_prefix}" "${rtrain_prefix}/Torch" "${rtrain_prefix}/share/cmake/Torch")
      if(NOT TARGET torch AND EXISTS "${rtrain_directory}/TorchConfig.cmake")
        get_filename_component(rtrain_torch_root "${rtrain_directory}/../../.." ABSOLUTE)
        find_program(RTRAIN_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
        if(NOT EXISTS "${rtrain_torch_root}/lib/libtorch_cuda.so" OR RTRAIN_NVCC OR CUDA_TOOLKIT_ROOT_DIR)
          break()
        endif()
        set(Torch_FOUND TRUE)
        set(Torch_DIR "${rtrain_directory}" CACHE PATH "Directory of TorchConfig.cmake")
        include("${rtrain_directory}/TorchConfigVersion.cmake")
        set(Torch_VERSION "${PACKAGE_VERSION}")
        set(TORCH_INSTALL_PREFIX "${rtrain_torch_root}")
        set(TORCH_INCLUDE_DIRS "${rtrain_torch_root}/include" "${rtrain_torch_root}/include/torch/csrc/api/include")
        add_library(torch INTERFACE IMPORTED GLOBAL)
        target_include_directories(torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
        target_link_libraries(torch INTERFACE "${rtrain_torch_root}/lib/libtorch_cpu.so"
                                              "${rtrain_torch_root}/lib/libc10.so")
        message(STATUS "libtorch in ${rtrain_torch_root} is a CUDA build, and no CUDA toolkit was found: "
                       "programs use its part for CPUs")
      endif()
    endforeach()
  endforeach()
endmacro()

if(NOT TARGET torch)
  rtrain_use_cpu_part()
  if(NOT Torch_DIR)
    find_package(Torch CONFIG QUIET)
  endif()
  if(NOT Torch_DIR)
    execute_process(
      COMMAND python3 -c "import torch.utils; print(torch.utils.cmake_prefix_path)"
      OUTPUT_VARIABLE rtrain_torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(rtrain_torch_prefix)
      list(APPEND CMAKE_PREFIX_PATH ${rtrain_torch_prefix})
    endif()
    rtrain_use_cpu_part()
  endif()
  if(NOT TARGET torch)
    rtrain_require(Torch "pip install torch==2.13.0")
  endif()
  if(Torch_VERSION AND Torch_VERSION VERSION_LESS 2.7)
    message(FATAL_ERROR "rtrain needs libtorch 2.7 or newer; the one in ${Torch_DIR} is ${Torch_VERSION}. "
                        "Install a newer one with\n    pip install torch==2.13.0\n"
                        "or name its prefix in CMAKE_PREFIX_PATH.")
  endif()
  if("${TORCH_CXX_FLAGS}" MATCHES "_GLIBCXX_USE_CXX11_ABI=0")
    message(FATAL_ERROR "rtrain needs a libtorch of the C++11 ABI, as Boost has it; the one in ${Torch_DIR} is of "
                        "the old one. Those of pip since 2.7 have it:\n    pip install torch==2.13.0\n"
                        "and of the downloads those named libtorch-cxx11-abi.")
  endif()
  if(NOT TARGET torch) # Conan's libtorch has it under another name
    add_library(torch INTERFACE IMPORTED)
    target_link_libraries(torch INTERFACE libtorch::libtorch)
  endif()
endif()

