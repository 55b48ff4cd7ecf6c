// SPDX-License-Identifier: Apache-2.0
// Expected: "s3://bucket/run".
#include <rtrain/data/arrow.hpp>

#include <cstdio>

int main() {
    const auto rows = rtrain::data::read_parquet("s3://bucket/rows"); // nothing is opened yet
    const auto [files, path] =
        rtrain::storage::locate("s3://bucket/run?region=us-east-1&anonymous=true");
    std::printf("%s\n", files.uri(path).c_str());
}
