// SPDX-License-Identifier: Apache-2.0
// Plays a libtorch of another version: the loader takes its function before that of the real one.
#include <map>
#include <string>

namespace caffe2 {
const std::map<std::string, std::string>& GetBuildOptions();
const std::map<std::string, std::string>& GetBuildOptions() {
    static const std::map<std::string, std::string> options{{"TORCH_VERSION", "2.6.1"}};
    return options;
}
} // namespace caffe2
