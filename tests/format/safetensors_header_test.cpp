// SPDX-License-Identifier: Apache-2.0

#include <rtrain/format/safetensors_header.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

using namespace rtrain;

namespace {

/// A file with this header and so many bytes of data.
std::string safetensors_file(const std::string& header, std::size_t data) {
    const std::uint64_t size = header.size();
    std::string file(sizeof size, '\0');
    std::memcpy(file.data(), &size, sizeof size);
    return file + header + std::string(data, 'x');
}

/// What is wrong with a header; "" when nothing is.
std::string wrong(const std::string& header, std::size_t data) {
    try {
        (void)checkpoint::parse_safetensors_header(safetensors_file(header, data));
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "";
}

std::string entry(const std::string& name, const std::string& shape, const std::string& offsets,
                  const std::string& type = "I8") {
    return '"' + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" +
           offsets + '}';
}

} // namespace

TEST_CASE("SafetensorsHeader.comes_back_as_it_was_made") {
    std::vector<checkpoint::TensorInfo> tensors{{"w\"\\\xC3\xA9", "F64", {3, 5}, 0, 0},
                                                {"empty", "F32", {0, 4}, 0, 0},
                                                {"b", "BF16", {}, 0, 0},
                                                {"", "BOOL", {7}, 0, 0}};
    const std::map<std::string, std::string> metadata{{"format", "pt"}, {"a\nb", "\"x\""}};
    const std::string head = checkpoint::make_safetensors_header(tensors, metadata);
    CHECK(head.size() % 64 == 0);
    const std::string file = head + std::string(120 + 2 + 7, 'x');
    const auto header = checkpoint::parse_safetensors_header(file);
    CHECK(header.metadata == metadata);
    CHECK(header.data_begin == head.size());
    REQUIRE(header.tensors.size() == tensors.size());
    std::uint64_t offset = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        CHECK(header.tensors[i].name == tensors[i].name);
        CHECK(header.tensors[i].dtype == tensors[i].dtype);
        CHECK(header.tensors[i].shape == tensors[i].shape);
        CHECK(header.tensors[i].begin == offset);
        offset = header.tensors[i].end;
    }
    CHECK(offset == 129);
    CHECK(checkpoint::parse_safetensors_header(checkpoint::make_safetensors_header({}))
              .tensors.empty());
}

TEST_CASE("SafetensorsHeader.every_truncation_is_found") {
    std::vector<checkpoint::TensorInfo> tensors{{"a", "I64", {6}, 0, 0},
                                                {"b", "F32", {2, 2}, 0, 0}};
    const std::string file = checkpoint::make_safetensors_header(tensors) + std::string(64, 'x');
    (void)checkpoint::parse_safetensors_header(file);
    for (std::size_t size = 0; size < file.size(); ++size) {
        CAPTURE(size);
        CHECK_THROWS_AS((void)checkpoint::parse_safetensors_header(std::span(file.data(), size)),
                        std::invalid_argument);
    }
    CHECK_THROWS_AS((void)checkpoint::parse_safetensors_header(file + 'x'), std::invalid_argument);
}

TEST_CASE("SafetensorsHeader.what_is_wrong_is_said") {
    const std::string a = entry("a", "[4]", "[0,4]");
    CHECK(wrong("{" + a + "}", 4).empty());
    CHECK(wrong("{" + a + "}  ", 4).empty());
    CHECK(wrong("{}", 0).empty());
    CHECK(wrong(R"({"__metadata__":null})", 0).empty());
    const auto says = [](const std::string& header, std::size_t data, const std::string& part) {
        const std::string text = wrong(header, data);
        CAPTURE(header);
        CAPTURE(text);
        CHECK(text.find(part) != std::string::npos);
    };
    says("", 0, "does not begin with '{'");
    says(" {}", 0, "does not begin with '{'");
    says("[]", 0, "does not begin with '{'");
    says("{", 0, "malformed at byte 1");
    says("{} x", 0, "malformed at byte 3");
    says("{" + a + "," + a + "}", 4, "\"a\" comes twice");
    says("{" + entry("a", "[2]", "[0,2]") + "," + entry("a", "[2]", "[2,4]") + "}", 4,
         "comes twice");
    says(R"({"a":{"dtype":"I8","dtype":"I8","shape":[4],"data_offsets":[0,4]}})", 4, "dtype twice");
    says(R"({"__metadata__":{},"__metadata__":{}})", 0, "__metadata__ twice");
    says(R"({"__metadata__":{"x":"1","x":"2"}})", 0, "__metadata__ comes twice");
    says(R"({"__metadata__":{"x":1}})", 0, "a number in the wrong place");
    says(R"({"__metadata__":{"x":{}}})", 0, "an object in the wrong place");
    says(R"({"__metadata__":[]})", 0, "an array in the wrong place");
    says(R"({"a":["I8",[4],[0,4]]})", 4, "an array in the wrong place");
    says(R"({"a":{"shape":[4],"data_offsets":[0,4]}})", 4, "has no dtype");
    says(R"({"a":{"dtype":"I8","data_offsets":[0,4]}})", 4, "has no shape");
    says(R"({"a":{"dtype":"I8","shape":[4]}})", 4, "has no data_offsets");
    says(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4],"x":1}})", 4, "unknown field");
    says(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0]}})", 4, "not have two data_offsets");
    says(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4,4]}})", 4,
         "not have two data_offsets");
    says("{" + entry("a", "[4]", "[0,4]", "Q4") + "}", 4, "unknown type");
    says("{" + entry("a", "4", "[0,4]") + "}", 4, "a number in the wrong place");
    says("{" + entry("a", "[-4]", "[0,4]") + "}", 4, "negative");
    says("{" + entry("a", "[-0]", "[0,0]") + "}", 0, "negative");
    says("{" + entry("a", "[4.0]", "[0,4]") + "}", 4, "not a 64-bit integer");
    says("{" + entry("a", "[1e2]", "[0,100]") + "}", 100, "not a 64-bit integer");
    says("{" + entry("a", "[18446744073709551616]", "[0,0]") + "}", 0, "not a 64-bit integer");
    says("{" + entry("a", "[9223372036854775808,0]", "[0,0]") + "}", 0, "invalid shape");
    says("{" + entry("a", "[0,4294967296,4294967296]", "[0,0]") + "}", 0, "invalid shape");
    says("{" + entry("a", "[4294967296,4294967296]", "[0,0]", "I64") + "}", 0, "invalid shape");
    says("{" + entry("a", "[[4]]", "[0,4]") + "}", 4, "malformed at byte");
    says("{" + entry("a", "[5]", "[0,4]") + "}", 4, "does not match its data_offsets");
    says("{" + entry("a", "[4]", "[4,0]") + "}", 4, "does not begin at byte 0");
    says("{" + entry("a", "[4]", "[1,5]") + "}", 5, "does not begin at byte 0");
    says("{" + a + "," + entry("b", "[4]", "[5,9]") + "}", 9, "\"b\" does not begin at byte 4");
    says("{" + a + "," + entry("b", "[4]", "[3,7]") + "}", 7, "\"b\" does not begin at byte 4");
    says("{" + a + "}", 3, "3 bytes of data, but its tensors need 4");
    says("{" + a + "}", 5, "5 bytes of data, but its tensors need 4");
    says("{" + entry("a", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]") + "}", 1, "malformed");
    CHECK(wrong("{" + entry("a", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]") + "}", 1).empty());
    says("{" + entry(std::string(513, 'x'), "[4]", "[0,4]") + "}", 4, "longer than 512");
    CHECK(wrong("{" + entry(std::string(512, 'x'), "[4]", "[0,4]") + "}", 4).empty());
    says("{" + entry("a\\u0000", "[4]", "[0,4]") + "}", 4, "control characters");
    says("{" + entry("a\xFF", "[4]", "[0,4]") + "}", 4, "malformed at byte");
    says("{" + std::string(2000, '[') + "}", 0, "malformed at byte");
    std::string huge = safetensors_file("", 20);
    huge[7] = '\x7F';
    CHECK_THROWS_WITH((void)checkpoint::parse_safetensors_header(huge), "its header is cut off");
    std::string many = "{";
    for (int i = 0; i <= 1'000'000; ++i) {
        many += (i == 0 ? "" : ",") + entry(std::to_string(i), "[]", "[0,0]");
    }
    says(many + "}", 0, "more than 1000000 tensors");
}

TEST_CASE("SafetensorsHeader.what_cannot_be_read_is_not_written") {
    const auto refused = [](checkpoint::TensorInfo tensor) {
        std::vector tensors{std::move(tensor)};
        CHECK_THROWS_AS((void)checkpoint::make_safetensors_header(tensors), std::invalid_argument);
    };
    refused({"__metadata__", "I8", {1}, 0, 0});
    refused({std::string(513, 'x'), "I8", {1}, 0, 0});
    refused({"a\n", "I8", {1}, 0, 0});
    refused({"a", "I9", {1}, 0, 0});
    refused({"a", "I8", std::vector<std::int64_t>(17, 1), 0, 0});
}
