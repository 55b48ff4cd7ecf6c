// SPDX-License-Identifier: Apache-2.0
// Expected: "29 x 37".
#include <rtrain/data/images.hpp>

#include <cstdio>

int main(int argc, char** argv) {
    const auto images =
        rtrain::data::read_images(argc > 1 ? argv[1] : "image.png", {.labels = false});
    const auto image = images.take(1)["image"];
    std::printf("%d x %d\n", static_cast<int>(image.size(2)), static_cast<int>(image.size(3)));
}
