// SPDX-License-Identifier: Apache-2.0
// Lists a checkpoint, checks its bytes, or writes one safetensors file of it, or a TorchScript
// program with its weights.
#include <rtrain/checkpoint/tool.hpp>
#include <rtrain/script.hpp>
#ifdef RTRAIN_EXAMPLE_ARROW // s3://... and others
#include <rtrain/storage/arrow.hpp>
#endif

#include <iostream>
#include <string>

int main(int argc, char** argv) try {
    const std::string evaluation = "--evaluation";
    const std::string command = argc > 2 ? argv[1] : "";
    const rtrain::Checkpoint checkpoint(argc > 2 ? argv[2] : "");
    if (command == "list" && argc == 3) {
        rtrain::checkpoint::list(checkpoint, std::cout);
    } else if (command == "verify" && argc == 3) {
        rtrain::checkpoint::verify(checkpoint.as_directory());
        std::cout << checkpoint.uri() << " is valid\n";
    } else if (command == "merge" && argc == 4) {
        rtrain::checkpoint::merge_into_one_file(checkpoint, argv[3]);
    } else if (command == "script" && (argc == 5 || (argc == 6 && argv[5] == evaluation))) {
        rtrain::save_script(checkpoint, argv[3], argv[4], {.evaluation = argc == 6});
    } else {
        std::cerr
            << "usage: checkpoint_tool list|verify <checkpoint>\n"
               "       checkpoint_tool merge <checkpoint> <file.safetensors>\n"
               "       checkpoint_tool script <checkpoint> <net.pt> <out.pt> [--evaluation]\n";
        return 2;
    }
    return 0;
} catch (const rtrain::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
