// SPDX-License-Identifier: Apache-2.0
#include "support/training.hpp"

#include <rtrain/format/safetensors.hpp>
#include <rtrain/weights.hpp>

#include <doctest/doctest.h>

#include <sys/stat.h>

using namespace rtrain;
using test::code_of;
namespace safetensors = checkpoint::safetensors;

namespace {

/// Remembers what was written, and from where.
struct Recorder {
    std::string bytes;
    std::vector<const void*> places;
    void write(const void* data, std::size_t size) {
        bytes.append(static_cast<const char*>(data), size);
        places.push_back(data);
    }
};

} // namespace

TEST_CASE("Safetensors.tensors_are_written_from_where_they_are") {
    const auto big = torch::randn({1000, 100});
    const auto flags = torch::ones({3}, torch::kBool);
    const auto wide = torch::randn({5}, torch::kDouble);
    Recorder sink;
    safetensors::write(sink, {{"a.flags", flags}, {"big", big}, {"view", big.t()}, {"wide", wide}},
                       {{"format", "pt"}});
    const auto direct = [&](const torch::Tensor& tensor) {
        return std::count(sink.places.begin(), sink.places.end(), tensor.const_data_ptr());
    };
    CHECK(sink.places.size() == 5);
    CHECK(direct(big) == 1);
    CHECK(direct(flags) == 1);
    CHECK(direct(wide) == 1);

    const auto header = checkpoint::parse_safetensors_header(sink.bytes);
    CHECK(header.data_begin % 64 == 0);
    CHECK(header.metadata.at("format") == "pt");
    for (const auto& info : header.tensors) {
        CHECK(info.begin % safetensors::element_type(info.dtype).second == 0);
    }
    const test::Directory directory("safetensors-sink");
    test::write(directory.path() / "t", sink.bytes);
    const auto read = safetensors::read(directory.path() / "t");
    CHECK(read.at("view").equal(big.t()));
    CHECK(read.at("wide").equal(wide));
}

TEST_CASE("Safetensors.conjugate_and_negative_views_are_written_as_they_read") {
    const test::Directory directory("safetensors-views");
    const auto tensor = torch::view_as_complex(torch::randn({4, 2}));
    safetensors::write(directory.path() / "t", {{"conj", tensor.conj()},
                                                {"imag", torch::imag(tensor.conj()).contiguous()},
                                                {"neg", torch::imag(tensor.conj())}});
    const auto read = safetensors::read(directory.path() / "t");
    CHECK(read.at("conj").equal(tensor.conj().resolve_conj()));
    CHECK(read.at("neg").equal(-torch::imag(tensor)));
}

TEST_CASE("Safetensors.what_the_format_cannot_hold_is_an_error") {
    const test::Directory directory("safetensors-refused");
    const auto refused = [&](const std::string& name, const torch::Tensor& tensor) {
        return code_of([&] { safetensors::write(directory.path() / "t", {{name, tensor}}); });
    };
    CHECK(refused("a", torch::Tensor()) == "RT-K6");
    CHECK(refused("a", torch::eye(3).to_sparse()) == "RT-K6");
    CHECK(refused("a", torch::empty({3}, torch::kMeta)) == "RT-K6");
    CHECK(refused("a", torch::zeros({3}, torch::kComplexDouble)) == "RT-K6");
    CHECK(refused("a\nb", torch::zeros({3})) == "RT-K20");
    CHECK(refused("__metadata__", torch::zeros({3})) == "RT-K20");
    CHECK(refused("a", torch::zeros({1}).expand(
                           {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1})) == "RT-K20");
}

TEST_CASE("Safetensors.loaded_tensors_are_private") {
    const test::Directory directory("safetensors-private");
    const auto file = directory.path() / "t";
    safetensors::write(file, {{"a", torch::zeros({8})}});
    const std::string before = test::read(file);
    auto first = safetensors::read(file).at("a");
    const auto second = safetensors::read(file).at("a");
    first.fill_(7);
    CHECK(second.equal(torch::zeros({8})));
    std::filesystem::remove(file);
    CHECK(first.equal(torch::full({8}, 7.0F)));
    test::write(file, before);
    CHECK(safetensors::read(file).at("a").equal(torch::zeros({8})));
}

TEST_CASE("Safetensors.unaligned_data_is_copied") {
    const test::Directory directory("safetensors-unaligned");
    const auto values = torch::randn({3});
    for (std::size_t shift = 1; shift < 8; ++shift) {
        std::string header = R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})";
        header.resize(64 - 8 + shift, ' ');
        const std::uint64_t size = header.size();
        test::write(directory.path() / "t",
                    std::string(reinterpret_cast<const char*>(&size), 8) + header +
                        std::string(static_cast<const char*>(values.const_data_ptr()), 12));
        CHECK(safetensors::read(directory.path() / "t").at("a").equal(values));
    }
}

TEST_CASE("Safetensors.only_ordinary_files_are_read") {
    const test::Directory directory("safetensors-kinds");
    const auto pipe = directory.path() / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    CHECK(code_of([&] { (void)safetensors::read(pipe); }) == "RT-S4");
    CHECK(code_of([&] { (void)safetensors::read(directory.path()); }) == "RT-S4");
    CHECK(code_of([&] { (void)safetensors::read(directory.path() / "absent"); }) == "RT-S3");
    test::write(directory.path() / "empty", "");
    CHECK(code_of([&] { (void)safetensors::read(directory.path() / "empty"); }) == "RT-K2");
}

namespace {

/// Tensors of every type, and views of one another.
checkpoint::Tensors all_types() {
    checkpoint::Tensors tensors;
    for (const auto& [type, name] : checkpoint::torch_file::types) {
        tensors.emplace("type." + std::string(name),
                        torch::randint(0, 2, {3, 5}).to(torch::TensorOptions(type)));
    }
    const auto base = torch::randn({6, 4});
    tensors.emplace("base", base);
    tensors.emplace("same", base);
    tensors.emplace("transposed", base.t());
    tensors.emplace("part", base.slice(0, 2, 5));
    tensors.emplace("expanded", torch::ones({1}).expand({3, 4}));
    tensors.emplace("scalar", torch::tensor(3.5));
    tensors.emplace("empty", torch::empty({0, 4}));
    tensors.emplace("conj", torch::view_as_complex(torch::randn({4, 2})).conj());
    return tensors;
}

void check_equal(const checkpoint::Tensors& left, const checkpoint::Tensors& right) {
    REQUIRE(left.size() == right.size());
    for (const auto& [name, tensor] : left) {
        CAPTURE(name);
        REQUIRE(right.contains(name));
        CHECK((right.at(name).scalar_type() == tensor.scalar_type()));
        CHECK(right.at(name).sizes() == tensor.sizes());
        const auto type = tensor.is_complex() ? torch::kComplexDouble : torch::kDouble;
        CHECK(right.at(name).to(type).equal(tensor.to(type)));
    }
}

} // namespace

TEST_CASE("TorchFile.every_type_and_view_comes_back") {
    const test::Directory directory("torch-file");
    const auto tensors = all_types();
    checkpoint::write_torch_file(directory.path() / "t.pt", tensors);
    const auto read = checkpoint::read_torch_file(directory.path() / "t.pt");
    check_equal(tensors, read);
    CHECK(read.at("base").const_data_ptr() == read.at("same").const_data_ptr());
    CHECK(reinterpret_cast<std::uintptr_t>(read.at("base").const_data_ptr()) % 64 == 0);
}

TEST_CASE("TorchFile.every_changed_byte_is_found_or_harmless") {
    const test::Directory directory("torch-file-damaged");
    const auto file = directory.path() / "t.pt";
    const checkpoint::Tensors tensors{{"a", torch::arange(6)}, {"b", torch::randn({2, 2})}};
    checkpoint::write_torch_file(file, tensors);
    const std::string good = test::read(file);
    std::size_t found = 0;
    for (std::size_t place = 0; place < good.size(); ++place) {
        std::string bad = good;
        bad[place] = static_cast<char>(bad[place] ^ (1 << (place % 8)));
        test::write(file, bad);
        CAPTURE(place);
        checkpoint::Tensors read;
        const std::string code = code_of([&] { read = checkpoint::read_torch_file(file); });
        if (code.empty()) {
            check_equal(tensors, read);
        } else {
            CHECK(code == "RT-K21");
            ++found;
        }
    }
    CHECK(found > 200); // the rest are dates, padding, and records that nothing reads
    for (std::size_t size = 0; size < good.size(); size += 7) {
        CAPTURE(size);
        test::write(file, good.substr(0, size));
        CHECK(code_of([&] { (void)checkpoint::read_torch_file(file); }) == "RT-K21");
    }
}

TEST_CASE("TorchFile.a_full_disk_is_an_error") {
    if (!std::filesystem::exists("/dev/full")) {
        return;
    }
    CHECK(code_of([] {
              checkpoint::write_torch_file("/dev/full", {{"a", torch::zeros({100000})}});
          }) == "RT-S3");
    CHECK(code_of([] {
              checkpoint::write_torch_file("/dev/full", {{"a", torch::zeros({1})}});
          }) == "RT-S3");
}

TEST_CASE("TorchFile.what_is_not_written") {
    const test::Directory directory("torch-file-refused");
    const auto refused = [&](const std::string& name, const torch::Tensor& tensor) {
        return code_of([&] {
            checkpoint::write_torch_file(directory.path() / "t", {{name, tensor}});
        });
    };
    CHECK(refused("a", torch::Tensor()) == "RT-K23");
    CHECK(refused("a", torch::eye(3).to_sparse()) == "RT-K23");
    CHECK(refused("a", torch::empty({3}, torch::kMeta)) == "RT-K23");
    CHECK(refused("a\nb", torch::zeros({3})) == "RT-K23");
    CHECK(refused("a", torch::zeros({1}).expand(
                           {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1})) == "RT-K23");
}

TEST_CASE("Weights.come_back_from_every_kind_of_file") {
    const test::Directory directory("weights");
    const test::Net saved(0, true);
    saved->batch_norm->running_mean.fill_(3);
    for (const char* const name : {"w.safetensors", "w.pt", "w.pth", "w.bin", "w.PT"}) {
        CAPTURE(name);
        save_weights(directory.path() / name, saved);
        test::Net loaded(0, true);
        CHECK(!test::flat(*loaded).equal(test::flat(*saved)));
        const auto* const place = loaded->in->weight.const_data_ptr();
        const auto found = load_weights(loaded, directory.path() / name);
        CHECK(found.missing.empty());
        CHECK(found.unexpected.empty());
        CHECK(test::flat(*loaded).equal(test::flat(*saved)));
        CHECK(loaded->in->weight.const_data_ptr() == place);
        CHECK(loaded->in->weight.requires_grad());
    }
    std::size_t files = 0;
    for (const auto& item : std::filesystem::directory_iterator(directory.path())) {
        CHECK(item.path().extension() != ".tmp");
        ++files;
    }
    CHECK(files == 5);
    const torch::nn::Module& plain = *saved;
    save_weights(directory.path() / "w.pt", plain);
    auto pointer = std::make_shared<test::NetImpl>(0, true);
    (void)load_weights(pointer, directory.path() / "w.pt");
    CHECK(test::flat(*pointer).equal(test::flat(*saved)));
}

TEST_CASE("Weights.names_that_do_not_fit") {
    const test::Directory directory("weights-names");
    const auto file = directory.path() / "w.safetensors";
    const test::Net saved(0, true);
    save_weights(file, saved);
    test::Net loaded;
    const auto before = test::flat(*loaded);
    const std::string text = test::message_of([&] { (void)load_weights(loaded, file); });
    CHECK(test::contains(text, R"("norm.bias", "norm.num_batches_tracked", "norm.running_mean" and)"
                               " 2 more, which the model lacks"));
    CHECK(test::contains(text, "[RT-K24]"));
    CHECK(test::flat(*loaded).equal(before));
    const auto found = load_weights(loaded, file, {.strict = false});
    CHECK(found.missing.empty());
    CHECK(found.unexpected.size() == 5);
    CHECK(loaded->out->weight.equal(saved->out->weight));

    save_weights(file, loaded);
    test::Net more(0, true);
    CHECK(test::contains(test::message_of([&] { (void)load_weights(more, file); }),
                         "the file lacks \"norm.bias\""));
    CHECK(load_weights(more, file, {.strict = false}).missing.size() == 5);
    CHECK(more->out->weight.equal(saved->out->weight));
}

TEST_CASE("Weights.a_prefix_is_taken_off") {
    const test::Directory directory("weights-prefix");
    const test::Net saved;
    auto tensors = weights::tensors_of(*saved);
    checkpoint::Tensors nested{{"epoch", torch::tensor(3)}, {"optimizer.m", torch::zeros({2})}};
    for (const auto& [name, tensor] : tensors) {
        nested.emplace("model." + name, tensor);
    }
    checkpoint::write_torch_file(directory.path() / "c.pt", nested);
    test::Net loaded;
    CHECK(code_of([&] { (void)load_weights(loaded, directory.path() / "c.pt"); }) == "RT-K24");
    (void)load_weights(loaded, directory.path() / "c.pt", {.prefix = "model."});
    CHECK(test::flat(*loaded).equal(test::flat(*saved)));
}

TEST_CASE("Weights.shapes_and_types_that_do_not_fit_change_nothing") {
    const test::Directory directory("weights-shapes");
    const auto file = directory.path() / "w.safetensors";
    test::Net model;
    const auto before = test::flat(*model);
    const auto load = [&](const std::string& name, const torch::Tensor& tensor, bool strict) {
        auto tensors = weights::tensors_of(*test::Net());
        tensors[name] = tensor;
        checkpoint::safetensors::write(file, tensors);
        const std::string text =
            test::message_of([&] { (void)load_weights(model, file, {.strict = strict}); });
        CHECK(test::flat(*model).equal(before));
        return text;
    };
    CHECK(load("out.weight", torch::zeros({32, 10}), true) ==
          "\"out.weight\" is [32, 10] in the file, but [10, 32] in the model [RT-K25]");
    CHECK(test::contains(load("out.weight", torch::zeros({32, 10}), false), "[RT-K25]"));
    CHECK(test::contains(load("out.bias", torch::zeros({10}, torch::kComplexFloat), true),
                         "which cannot be converted to"));
    auto tensors = weights::tensors_of(*model);
    for (auto& [name, tensor] : tensors) {
        tensor = tensor.to(torch::kBFloat16);
    }
    checkpoint::safetensors::write(file, tensors);
    (void)load_weights(model, file);
    CHECK(test::flat(*model).equal(before.to(torch::kBFloat16).to(torch::kDouble)));
    CHECK((model->out->weight.scalar_type() == torch::kFloat));
}

TEST_CASE("Weights.shards_of_hugging_face") {
    const test::Directory directory("weights-shards");
    const test::Net saved;
    const auto tensors = weights::tensors_of(*saved);
    const auto index = directory.path() / "model.safetensors.index.json";
    test::Net loaded;
    const auto load = [&] {
        return code_of([&] { (void)load_weights(loaded, directory.path()); });
    };
    CHECK(load() == "RT-K26");
    boost::json::object map;
    for (const auto& [name, tensor] : tensors) {
        const std::string file = "model-" + name.substr(0, name.find('.')) + ".safetensors";
        map[name] = file;
        auto shard = std::filesystem::exists(directory.path() / file)
                         ? checkpoint::safetensors::read(directory.path() / file)
                         : checkpoint::Tensors{};
        for (auto& [other, content] : shard) {
            content = content.clone();
        }
        shard[name] = tensor;
        checkpoint::safetensors::write(directory.path() / file, shard);
    }
    const auto write_index = [&] {
        test::write(index,
                    json::serialize({{"metadata", {{"total_size", 1}}}, {"weight_map", map}}));
    };
    write_index();
    CHECK(load().empty());
    CHECK(test::flat(*loaded).equal(test::flat(*saved)));
    map["in.bias"] = "model-out.safetensors";
    write_index();
    CHECK(load() == "RT-K27");
    map["in.bias"] = "../model.safetensors";
    write_index();
    CHECK(load() == "RT-K27");
    test::write(index, "{");
    CHECK(load() == "RT-K27");
    std::filesystem::remove(index);
    save_weights(directory.path() / "model.safetensors", saved);
    CHECK(load().empty());
}

TEST_CASE("Weights.one_of_tied_weights_is_enough") {
    struct Tied : torch::nn::Module {
        Tied() {
            first = register_parameter("first", torch::randn({3, 3}));
            second = register_parameter("second", first);
        }
        torch::Tensor first, second;
    };
    const test::Directory directory("weights-tied");
    const auto value = torch::randn({3, 3});
    checkpoint::safetensors::write(directory.path() / "w.safetensors", {{"first", value}});
    Tied model;
    CHECK(load_weights(model, directory.path() / "w.safetensors").missing.empty());
    CHECK(model.second.equal(value));
}

TEST_CASE("Weights.other_paths_are_errors") {
    const test::Directory directory("weights-paths");
    test::Net model;
    CHECK(code_of([&] { save_weights(directory.path() / "w.h5", model); }) == "RT-K26");
    CHECK(code_of([&] { (void)load_weights(model, directory.path() / "w.onnx"); }) == "RT-K26");
    CHECK(code_of([&] { (void)load_weights(model, directory.path() / "w.pt"); }) == "RT-S3");
    CHECK(code_of([&] { save_weights(directory.path() / "no/w.pt", model); }) == "RT-S3");
    test::write(directory.path() / "w.pt", "\x80\x02\x8a\x0al\xfc\x9c");
    CHECK(test::contains(
        test::message_of([&] { (void)load_weights(model, directory.path() / "w.pt"); }),
        "before PyTorch 1.6"));
}

TEST_CASE("Weights.a_failed_save_leaves_the_old_file") {
    struct Odd : torch::nn::Module {
        Odd() { register_buffer("odd", torch::eye(3).to_sparse()); }
    };
    const test::Directory directory("weights-old");
    const auto file = directory.path() / "w.pt";
    const test::Net model;
    save_weights(file, model);
    const std::string before = test::read(file);
    Odd odd;
    CHECK(code_of([&] { save_weights(file, odd); }) == "RT-K23");
    CHECK(test::read(file) == before);
    CHECK(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 1);
}
