// SPDX-License-Identifier: Apache-2.0
/// @file
/// Serializes values exchanged by ranks of one job: numbers in native byte order, strings and
/// vectors after their lengths. Cost tier 0: std only.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace rtrain::detail {

class Packer {
public:
    template <class T>
    requires std::is_arithmetic_v<T>
    void put(T value) { append(&value, sizeof value); }
    void put(std::string_view text) {
        put(text.size());
        append(text.data(), text.size());
    }
    template <class T>
    requires std::is_arithmetic_v<T>
    void put(const std::vector<T>& values) {
        put(values.size());
        put_all(values);
    }
    /// Writes no length; the reader knows it.
    template <class T>
    requires std::is_arithmetic_v<T>
    void put_all(const std::vector<T>& values) { append(values.data(), values.size() * sizeof(T)); }
    [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }

private:
    void append(const void* from, std::size_t size) {
        bytes_.append(static_cast<const char*>(from), size);
    }
    std::string bytes_;
};

/// Reads the values written by a Packer, in the same order.
class Unpacker {
public:
    explicit Unpacker(std::string_view bytes) : bytes_(bytes) {}

    [[nodiscard]] bool is_empty() const noexcept { return bytes_.empty(); }
    template <class T>
    requires std::is_arithmetic_v<T>
    [[nodiscard]] T take() {
        T value{};
        copy(&value, sizeof value);
        return value;
    }
    [[nodiscard]] std::string take_text() {
        std::string text(take<std::size_t>(), '\0');
        copy(text.data(), text.size());
        return text;
    }
    template <class T>
    [[nodiscard]] std::vector<T> take_vector() {
        std::vector<T> values(take<std::size_t>());
        take_all(values);
        return values;
    }
    /// Fills `values`, whose size is the expected count.
    template <class T>
    void take_all(std::vector<T>& values) {
        copy(values.data(), values.size() * sizeof(T));
    }

private:
    void copy(void* to, std::size_t size) {
        if (size > 0) {
            std::memcpy(to, bytes_.data(), size);
            bytes_.remove_prefix(size);
        }
    }
    std::string_view bytes_;
};

} // namespace rtrain::detail
