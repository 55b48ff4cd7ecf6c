// SPDX-License-Identifier: Apache-2.0
// Plays a libtorch of another version: the loader takes its function before that of the real one.
#include <string>

namespace at {
std::string show_config();
std::string show_config() {
    return "PyTorch built with:\n  - Build settings: BUILD_TYPE=Release, TORCH_VERSION=2.6.1, "
           "USE_CUDA=0, \n";
}
} // namespace at
