// SPDX-License-Identifier: Apache-2.0
// Any bytes, as the pickle in a file of torch.save. What is accepted has tensors that lie in their
// storages and can be written again.
#include "require.hpp"

#include <rtrain/format/pickle/pickle_reader.hpp>
#include <rtrain/format/pickle/pickle_writer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>

using namespace rtrain::checkpoint;

__extension__ typedef unsigned __int128 Wide; // no product of two sizes overflows it

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::map<std::string, PickledTensor> tensors;
    try {
        tensors = parse_pickled_tensors({reinterpret_cast<const char*>(data), size});
    } catch (const std::invalid_argument&) {
        return 0;
    }
    for (auto& [name, tensor] : tensors) {
        const auto* const type =
            std::find_if(pickle::element_types.begin(), pickle::element_types.end(),
                         [dtype = tensor.dtype](const auto& item) { return item.dtype == dtype; });
        require(type != pickle::element_types.end(), "types are known");
        require(tensor.shape.size() == tensor.strides.size(), "each dimension has a stride");
        bool empty = false;
        auto last = static_cast<Wide>(tensor.offset);
        for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
            require(tensor.shape[i] >= 0 && tensor.strides[i] >= 0, "sizes are not negative");
            empty = empty || tensor.shape[i] == 0;
            last += static_cast<Wide>(std::max<std::int64_t>(tensor.shape[i], 1) - 1) *
                    static_cast<Wide>(tensor.strides[i]);
        }
        require(tensor.offset >= 0, "offsets are not negative");
        require(empty || (last + 1) * type->size <= tensor.storage_bytes,
                "tensors lie in their storages");
        tensor.conjugate = tensor.negative = false; // is not written
    }
    const auto again = parse_pickled_tensors(make_pickle(tensors));
    require(again.size() == tensors.size(), "tensors come back");
    for (const auto& [name, tensor] : tensors) {
        const PickledTensor& other = again.at(name);
        require(other.shape == tensor.shape && other.strides == tensor.strides &&
                    other.offset == tensor.offset && other.dtype == tensor.dtype &&
                    other.storage == tensor.storage,
                "tensors come back as they were");
    }
    return 0;
}
