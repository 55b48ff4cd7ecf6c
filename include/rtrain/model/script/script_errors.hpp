// SPDX-License-Identifier: Apache-2.0
/// @file
/// Errors of scripts: a program that libtorch cannot load, wrong arguments, a method that does not
/// exist, an exception in Python's code.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/known_names.hpp>
#include <rtrain/base/text/strict_stream.hpp>

#include <ATen/core/function_schema.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::script {

/// The text of libtorch's exception without its backtrace, in one line.
[[nodiscard]] inline std::string first_lines(std::string_view text) {
    text = text.substr(0, text.find("\nException raised from"));
    std::string line;
    for (const char c : text.substr(0, text.find("\n\n"))) {
        const bool is_space = c == '\n' || c == ' ' || c == '\t';
        if (!is_space || (!line.empty() && line.back() != ' ')) {
            line += is_space ? ' ' : c;
        }
    }
    while (!line.empty() && (line.back() == ' ' || line.back() == '.')) {
        line.pop_back();
    }
    return line;
}

/// The library that registers the operators of a namespace.
[[nodiscard]] inline std::string library_of(std::string_view name) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 8> known{{
        {"torchvision", "libtorchvision (github.com/pytorch/vision, built with CMake)"},
        {"torchaudio", "libtorchaudio"},
        {"torch_scatter", "pytorch_scatter"},
        {"torch_sparse", "pytorch_sparse"},
        {"torch_cluster", "pytorch_cluster"},
        {"fbgemm", "FBGEMM"},
        {"tensorrt", "Torch-TensorRT"},
        {"torchao", "torchao"},
    }};
    const std::string_view space = name.substr(0, name.find("::"));
    for (const auto& [prefix, library] : known) {
        if (space == prefix) {
            return detail::concat("link ", library, ", with -Wl,--no-as-needed");
        }
    }
    return detail::concat("link the library that registers operators of \"", space,
                          "\", with -Wl,--no-as-needed, or load it with dlopen()");
}

/// Throws ModelError [RT-M82, RT-M83, RT-M84] for a program that torch::jit::load() refuses.
[[noreturn]] inline void throw_not_loaded(const std::string& file, std::string_view why) {
    constexpr std::string_view unknown = "Unknown builtin op: ";
    if (const auto place = why.find(unknown); place != std::string_view::npos) {
        std::string_view name = why.substr(place + unknown.size());
        name = name.substr(0, name.find_first_of(".\n "));
        throw ModelError("RT-M83",
                         detail::concat(file, " uses the operator ", name,
                                        ", which this program does not have; ", library_of(name)));
    }
    if (why.find("maximum supported version") != std::string_view::npos) {
        throw ModelError("RT-M84",
                         detail::concat(file,
                                        " was written by a newer PyTorch than this program's "
                                        "libtorch: ",
                                        first_lines(why),
                                        "; use that libtorch, or export with this one's version"));
    }
    throw ModelError("RT-M82", detail::concat("libtorch cannot load ", file, ": ", first_lines(why),
                                              "; export it again"));
}

/// Throws ModelError [RT-M88]; `names`: the methods that exist.
[[noreturn]] inline void throw_no_method(const std::string& name,
                                         const std::vector<std::string>& names) {
    throw ModelError("RT-M88",
                     detail::concat("the script has no method \"", name, "\"; ",
                                    detail::did_you_mean(name, names), "it has ",
                                    detail::listed(names),
                                    "; mark others with @torch.jit.export in Python, and export it "
                                    "again"));
}

/// Throws ModelError [RT-M86].
[[noreturn]] inline void throw_wrong_arguments(const c10::FunctionSchema& schema,
                                               std::string_view why) {
    // libtorch's text ends with the value and the declaration.
    const std::string text = first_lines(why.substr(0, why.find("\nPosition:")));
    const std::string_view reason = std::string_view(text).substr(0, text.find(" Declaration:"));
    auto declared = detail::strict(std::ostringstream());
    declared << schema;
    throw ModelError("RT-M86", detail::concat(reason, "; the script declares ", declared.str()));
}

/// Finds the innermost line of Python in the traceback of an exception in a script: "net.py:12 in
/// forward: return self.fc(x)". Empty: it has none.
[[nodiscard]] inline std::string python_line(std::string_view text) {
    constexpr std::string_view original = "Traceback of TorchScript, original code";
    constexpr std::string_view file = "File \"";
    if (const auto begin = text.find(original); begin != std::string_view::npos) {
        text.remove_prefix(begin);
    }
    const auto place = text.rfind(file);
    const auto mark = text.rfind("~ <--- HERE");
    if (place == std::string_view::npos) {
        return "";
    }
    std::string_view where = text.substr(place + file.size());
    where = where.substr(0, where.find('\n'));
    const auto quote = where.find("\", line ");
    if (quote == std::string_view::npos) {
        return "";
    }
    std::string line = detail::concat(where.substr(0, quote), ':', where.substr(quote + 8));
    if (const auto comma = line.find(", in "); comma != std::string::npos) {
        line.replace(comma, 2, " ");
    }
    if (mark != std::string_view::npos && mark > place) { // the line above the mark
        std::string_view code = text.substr(0, text.rfind('\n', mark));
        code = code.substr(code.rfind('\n') + 1);
        code.remove_prefix(std::min(code.find_first_not_of(' '), code.size()));
        line += detail::concat(": ", code);
    }
    return line;
}

/// The exception of an exception in a script: its last line, and where Python's code raised it.
/// `hint`: what may be the cause; empty: unknown.
[[nodiscard]] inline ModelError failure_of(const std::string& method, std::string_view why,
                                           const std::string& hint) {
    const std::string where = python_line(why);
    if (const auto end = why.find("\nException raised from"); end != std::string_view::npos) {
        why = why.substr(0, end);
    }
    constexpr std::string_view here = "<--- HERE\n";
    const auto mark = why.rfind(here);
    std::string reason =
        first_lines(mark == std::string_view::npos ? why : why.substr(mark + here.size()));
    if (reason.empty()) {
        reason = "an exception";
    }
    return ModelError("RT-M89",
                      detail::concat(method, "() of the script failed: ", reason,
                                     where.empty() ? std::string() : " (" + where + ')', hint));
}

} // namespace rtrain::script
