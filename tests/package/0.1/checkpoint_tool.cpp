// SPDX-License-Identifier: Apache-2.0
// Looks at a checkpoint, checks its bytes, or makes one safetensors file of it.
#include <rtrain/checkpoint/tool.hpp>
#ifdef RTRAIN_EXAMPLE_ARROW // s3://... and others
#include <rtrain/storage/arrow.hpp>
#endif

#include <iostream>
#include <string>

int main(int argc, char** argv) try {
    const std::string command = argc > 2 ? argv[1] : "";
    const rtrain::Checkpoint checkpoint(argc > 2 ? argv[2] : "");
    if (command == "list" && argc == 3) {
        rtrain::checkpoint::list(checkpoint, std::cout);
    } else if (command == "verify" && argc == 3) {
        rtrain::checkpoint::verify(checkpoint.as_directory());
        std::cout << checkpoint.uri() << " is sound\n";
    } else if (command == "merge" && argc == 4) {
        rtrain::checkpoint::merge_into_one_file(checkpoint, argv[3]);
    } else {
        std::cerr << "usage: checkpoint_tool list|verify <checkpoint>\n"
                     "       checkpoint_tool merge <checkpoint> <file.safetensors>\n";
        return 2;
    }
    return 0;
} catch (const rtrain::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
