// SPDX-License-Identifier: Apache-2.0
/// @file
/// Names of functions by address, including those that a program does not export: the dynamic
/// linker has exported ones only; the others are in the symbol table of the program's file
/// (.symtab, unless it is stripped).
#pragma once

#include <rtrain/base/type_name.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rtrain::launch {

namespace control {

/// The symbol table of an ELF file. Other, damaged or stripped files have no symbols.
class SymbolTable {
public:
    explicit SymbolTable(const char* path) {
        const int file = ::open(path, O_RDONLY | O_CLOEXEC);
        struct stat about {};
        if (file >= 0 && ::fstat(file, &about) == 0 && about.st_size > 0) {
            void* const data = ::mmap(nullptr, static_cast<std::size_t>(about.st_size), PROT_READ,
                                      MAP_PRIVATE, file, 0);
            if (data != MAP_FAILED) {
                data_ = static_cast<const char*>(data);
                bytes_ = static_cast<std::size_t>(about.st_size);
            }
        }
        if (file >= 0) {
            ::close(file);
        }
        find_tables();
    }
    SymbolTable(const SymbolTable&) = delete;
    SymbolTable& operator=(const SymbolTable&) = delete;
    ~SymbolTable() {
        if (data_ != nullptr) {
            ::munmap(const_cast<char*>(data_), bytes_);
        }
    }

    /// The function that contains an address in the file; null if there is none.
    [[nodiscard]] const char* function_at(std::uint64_t address) const {
        for (std::size_t i = 0; i < symbols_; ++i) {
            const auto symbol = at<Symbol>(symbols_at_ + i * sizeof(Symbol));
            if (symbol && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC &&
                symbol->st_shndx != SHN_UNDEF && address >= symbol->st_value &&
                address - symbol->st_value < symbol->st_size && symbol->st_name < names_bytes_) {
                return data_ + names_at_ + symbol->st_name; // ends with 0: see find_tables()
            }
        }
        return nullptr;
    }

private:
    using Header = ElfW(Ehdr);
    using Section = ElfW(Shdr);
    using Symbol = ElfW(Sym);

    template <class T>
    [[nodiscard]] std::optional<T> at(std::uint64_t offset) const {
        if (offset > bytes_ || bytes_ - offset < sizeof(T)) {
            return std::nullopt;
        }
        T value;
        std::memcpy(&value, data_ + offset, sizeof value);
        return value;
    }
    [[nodiscard]] bool holds(const Section& section) const {
        return section.sh_offset <= bytes_ && section.sh_size <= bytes_ - section.sh_offset;
    }

    void find_tables() {
        const auto header = at<Header>(0);
        constexpr unsigned char own_class = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
        if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
            header->e_ident[EI_CLASS] != own_class) {
            return;
        }
        const auto section_at = [&](std::uint64_t i) {
            return at<Section>(header->e_shoff + i * sizeof(Section));
        };
        for (std::uint64_t i = 0; i < header->e_shnum; ++i) {
            const auto table = section_at(i);
            if (!table || table->sh_type != SHT_SYMTAB || !holds(*table)) {
                continue;
            }
            const auto names = section_at(table->sh_link);
            if (names && holds(*names) && names->sh_size > 0 &&
                data_[names->sh_offset + names->sh_size - 1] == '\0') {
                symbols_at_ = table->sh_offset;
                symbols_ = table->sh_size / sizeof(Symbol);
                names_at_ = names->sh_offset;
                names_bytes_ = names->sh_size;
            }
        }
    }

    const char* data_ = nullptr;
    std::size_t bytes_ = 0;
    std::uint64_t symbols_at_ = 0;
    std::size_t symbols_ = 0;
    std::uint64_t names_at_ = 0;
    std::uint64_t names_bytes_ = 0;
};

} // namespace control

/// Resolves names; keeps the opened files for the next address.
class Symbols {
public:
    /// For example "train(Net&) in /home/me/program+0x1234"; without a name only the location.
    [[nodiscard]] std::string name(std::uintptr_t address) {
        Dl_info place{};
        link_map* object = nullptr;
        // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of a stack frame
        if (::dladdr1(reinterpret_cast<void*>(address), &place, reinterpret_cast<void**>(&object),
                      RTLD_DL_LINKMAP) == 0 ||
            object == nullptr) {
            return hex(address);
        }
        // The program itself has no name there, and argv[0] may be anything.
        const bool is_program = object->l_name == nullptr || *object->l_name == '\0';
        const char* symbol = place.dli_sname;
        if (symbol == nullptr) {
            symbol = table_of(is_program ? "/proc/self/exe" : object->l_name)
                         .function_at(address - object->l_addr);
        }
        const std::string where =
            place.dli_fname +
            ('+' + hex(address - reinterpret_cast<std::uintptr_t>(place.dli_fbase)));
        return symbol != nullptr ? detail::demangled(symbol) + " in " + where : where;
    }

private:
    [[nodiscard]] static std::string hex(std::uintptr_t number) {
        std::string digits;
        do {
            digits.insert(digits.begin(), "0123456789abcdef"[number % 16]);
            number /= 16;
        } while (number > 0);
        return "0x" + digits;
    }

    [[nodiscard]] const control::SymbolTable& table_of(const std::string& path) {
        auto& table = tables_[path];
        if (!table) {
            table = std::make_unique<control::SymbolTable>(path.c_str());
        }
        return *table;
    }

    std::map<std::string, std::unique_ptr<control::SymbolTable>> tables_;
};

} // namespace rtrain::launch
