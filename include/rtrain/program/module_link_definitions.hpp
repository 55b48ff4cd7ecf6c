// SPDX-License-Identifier: Apache-2.0
/// @file
/// Definitions of program/module_link.hpp.
#pragma once

#include <rtrain/base/crc32c.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/overloaded.hpp>
#include <rtrain/base/text/duration.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/layout/checked_file.hpp>
#include <rtrain/checkpoint/layout/contents.hpp>
#include <rtrain/checkpoint/store/staging.hpp>
#include <rtrain/checkpoint/store/user_files.hpp>
#include <rtrain/process/os/send_all.hpp>
#include <rtrain/process/preemption/signals_blocked.hpp>
#include <rtrain/program/module_link.hpp>
#include <rtrain/run/file_owners.hpp>
#include <rtrain/storage/locate.hpp>
#include <rtrain/version.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>
#include <variant>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rtrain::program {

namespace internal {

/// Differs for different contents.
[[nodiscard]] inline std::string digest_of(const checkpoint::FileRecord& file) {
    return detail::concat(
        file.size, ' ',
        checkpoint::crc32c({reinterpret_cast<const char*>(file.sums.data()), // NOLINT
                            file.sums.size() * sizeof file.sums[0]}));
}

/// Calls `action` unless an earlier one has failed; its error becomes that of `stored`.
template <class Action>
void attempt(launch::event::Stored& stored, Action&& action) {
    if (!stored.code.empty()) {
        return;
    }
    try {
        action();
    } catch (const std::exception& error) {
        const Failure failure = detail::failure_of(error);
        stored.code = failure.code.text().empty() ? "RT-T1" : failure.code.text();
        stored.error = failure.message;
    }
}

/// Throws CheckpointError [RT-E45].
inline void require_reportable(const std::filesystem::path& directory,
                               const std::filesystem::path& run) {
    std::error_code error;
    if (!std::filesystem::is_directory(directory, error)) {
        throw CheckpointError("RT-E45", detail::concat(directory.string(),
                                                       " is not a directory, so it cannot be "
                                                       "reported as a checkpoint"));
    }
    const auto inside = std::filesystem::canonical(directory, error)
                            .lexically_relative(std::filesystem::canonical(run, error));
    if (!inside.empty() && *inside.begin() != "..") {
        throw CheckpointError("RT-E45",
                              detail::concat(directory.string(), " is in the run's directory ",
                                             run.string(),
                                             ", which keeps its own copy of a checkpoint; report a "
                                             "directory outside of it"));
    }
}

} // namespace internal

RTRAIN_DOOR ModuleLink::~ModuleLink() {
    finish();
    close_other_end();
    if (own_end_ >= 0) {
        ::close(own_end_);
    }
}

RTRAIN_DOOR int ModuleLink::serve(launch::DriverLink& link, const RankPlace& place,
                                  const ProgramPlan& plan) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        throw LaunchError("RT-L7", detail::concat("cannot create the socket of the module rtrain: ",
                                                  std::strerror(errno)));
    }
    own_end_ = ends[0];
    other_end_ = ends[1];
    ::fcntl(other_end_, F_SETFD, 0); // the program inherits it
    link_ = &link;
    place_ = place;
    plan_ = plan;
    const launch::SignalsBlocked none;
    thread_ = process::Thread([this](const std::stop_token& stop) { work(stop); });
    return other_end_;
}

RTRAIN_DOOR void ModuleLink::close_other_end() noexcept {
    if (other_end_ >= 0) {
        ::close(std::exchange(other_end_, -1));
    }
}

RTRAIN_DOOR void ModuleLink::finish() noexcept {
    if (own_end_ >= 0) {
        ::shutdown(own_end_, SHUT_RDWR); // ends the thread
    }
    thread_ = process::Thread();
    storing_ = process::Thread();
}

RTRAIN_DOOR void ModuleLink::preempt(double grace_s) noexcept {
    ends_at_ = (Clock::now() + detail::duration_of(grace_s)).time_since_epoch().count();
}

RTRAIN_DOOR void ModuleLink::work(const std::stop_token& stop) {
    launch::FrameReader frames(max_module_message);
    std::array<char, 65536> bytes{};
    try {
        for (;;) {
            const ssize_t got = ::recv(own_end_, bytes.data(), bytes.size(), 0);
            if (got < 0 && errno == EINTR) {
                continue;
            }
            if (got <= 0) {
                return;
            }
            frames.append({bytes.data(), static_cast<std::size_t>(got)});
            while (const auto message = frames.next()) {
                module::Request request = parse(*message);
                if (auto* const log = std::get_if<module::Log>(&request)) {
                    link_->say(launch::event::Log{std::move(log->metrics)});
                    continue;
                }
                const auto reply = answer(request, stop);
                if (!reply || !send(*reply)) {
                    return;
                }
            }
        }
    } catch (const std::exception& error) { // a malformed message: the rest cannot be trusted
        send(module::error("RT-E50", detail::failure_of(error).message));
        ::shutdown(own_end_, SHUT_RDWR);
    }
}

RTRAIN_DOOR module::Request ModuleLink::parse(std::string_view message) const {
    module::Request request = module::parse(message);
    const auto* const hello = std::get_if<module::Hello>(&request);
    if ((hello != nullptr) == is_greeted_) {
        launch::control::malformed(is_greeted_ ? "a second process of this rank uses the module"
                                               : "the first one is not a hello");
    }
    return request;
}

RTRAIN_DOOR std::optional<boost::json::object> ModuleLink::answer(module::Request& request,
                                                                  const std::stop_token& stop) {
    return std::visit(detail::Overloaded{
                          [&](module::Hello& it) { return std::optional(welcome(it)); },
                          [&](module::Report& it) { return report(it, stop); },
                          [&](module::Meet& it) { return meet(it, stop); },
                          [](module::Log&) { return std::optional<boost::json::object>(); },
                      },
                      request);
}

RTRAIN_DOOR boost::json::object ModuleLink::welcome(const module::Hello& hello) {
    if (hello.protocol != module_protocol) {
        return module::error("RT-E49", detail::concat("the module rtrain ", hello.version,
                                                      " speaks protocol ", hello.protocol,
                                                      ", and rtrain run ", RTRAIN_VERSION,
                                                      " protocol ", module_protocol,
                                                      "; install both from the same release"));
    }
    is_greeted_ = true;
    return {{"kind", "welcome"},          {"rank", place_.rank},
            {"size", place_.size},        {"local_rank", place_.local_rank},
            {"node", place_.node},        {"local_size", place_.local_size},
            {"run", plan_.run},           {"directory", plan_.directory},
            {"restarts", plan_.restarts}, {"checkpoint", plan_.checkpoint},
            {"stop", plan_.stop}};
}

RTRAIN_DOOR std::optional<boost::json::object> ModuleLink::report(module::Report& report,
                                                                  const std::stop_token& stop) {
    launch::event::Report event{.call = calls_,
                                .metrics = std::move(report.metrics),
                                .has_files = !report.directory.empty(),
                                .in_background = report.in_background,
                                .checkpoint = report.checkpoint,
                                .metadata = std::move(report.metadata)};
    if (event.has_files) {
        try {
            add_files(event, report.directory);
        } catch (const Error& error) { // all ranks get it
            event.files.clear();
            event.code = error.code();
            event.error = error.message();
        }
    }
    return call(event, stop, report.directory, report.in_background);
}

RTRAIN_DOOR void ModuleLink::add_files(launch::event::Report& call,
                                       const std::filesystem::path& directory) const {
    internal::require_reportable(directory, plan_.directory);
    call.files = detail::names_to_report(directory);
    if (call.files.empty()) {
        throw CheckpointError("RT-E45", detail::concat(directory.string(),
                                                       " has no files, so it cannot be reported "
                                                       "as a checkpoint"));
    }
    for (const auto& item : Checkpoint(directory).metadata()) {
        call.metadata.emplace(item.key(), item.value()); // the report's own win
    }
    std::size_t bytes = json::serialize(call.metadata).size();
    for (const std::string& name : call.files) {
        bytes += name.size() + 3; // quotes and a comma
    }
    if (constexpr std::size_t most = std::size_t{256} << 10; bytes > most) {
        throw LaunchError("RT-E50",
                          detail::concat("the metadata and the names of the ", call.files.size(),
                                         " files in ", directory.string(), " have ", bytes,
                                         " bytes; the limit is ", most));
    }
}

RTRAIN_DOOR std::optional<boost::json::object> ModuleLink::meet(module::Meet& meet,
                                                                const std::stop_token& stop) {
    launch::event::Meet event{
        .call = calls_, .function = std::move(meet.function), .text = std::move(meet.text)};
    if (event.function == "preemption") {
        asks_ = true;
        if (const Clock::rep end = ends_at_; end != 0) {
            const std::chrono::duration<double> left =
                Clock::time_point(Clock::duration(end)) - Clock::now();
            event.text = detail::concat(std::max(left.count(), 0.0));
        }
    }
    return call(event, stop);
}

RTRAIN_DOOR std::optional<boost::json::object>
ModuleLink::call(const launch::RankEvent& event, const std::stop_token& stop,
                 const std::filesystem::path& directory, bool in_background) {
    using Reply = std::optional<boost::json::object>;
    link_->say(event);
    while (const auto answer = link_->answers().wait_for_answer(stop)) {
        if (std::visit([](const auto& one) { return one.call; }, *answer) != calls_) {
            continue; // to a call that has failed
        }
        const Reply reply = std::visit(detail::Overloaded{
                                           [&](const launch::event::Store& asked) -> Reply {
                                               store(asked, directory, in_background);
                                               return std::nullopt;
                                           },
                                           [](const launch::event::Reported& it) -> Reply {
                                               return {{{"kind", "reported"},
                                                        {"iteration", it.iteration},
                                                        {"checkpoint", it.checkpoint},
                                                        {"stop", it.stop}}};
                                           },
                                           [](const launch::event::Met& it) -> Reply {
                                               return {{{"kind", "met"}, {"text", it.text}}};
                                           },
                                           [](const launch::event::CallFailed& it) -> Reply {
                                               return module::error(it.code, it.error);
                                           },
                                       },
                                       *answer);
        if (reply) {
            ++calls_;
            return reply;
        }
    }
    return std::nullopt;
}

RTRAIN_DOOR void ModuleLink::store(const launch::event::Store& asked,
                                   const std::filesystem::path& directory, bool in_background) {
    const checkpoint::Staging staging(storage::locate(asked.run), asked.attempt, {}, {},
                                      /*first_list=*/0);
    const auto to = staging.directory_of(asked.checkpoint, place_.rank);
    launch::event::Stored stored{.call = asked.call};
    checkpoint::Contents contents;
    is_storing_ = true;
    internal::attempt(stored, [&] {
        for (const std::string& name : asked.shared) {
            if (std::ranges::find(asked.files, name) == asked.files.end()) {
                stored.shared[name] = internal::digest_of(checkpoint::record_of(directory, name));
            }
        }
        if (in_background) {
            checkpoint::copy_to_cache(directory, asked.files, to);
        } else {
            contents = checkpoint::copy_files(directory, asked.files, to);
        }
    });
    auto hand_in = [=, this]() mutable {
        internal::attempt(stored, [&] {
            if (in_background) {
                contents = checkpoint::sync_files(to, asked.files);
            }
            for (const checkpoint::FileRecord& file : contents.files) {
                if (std::ranges::find(asked.shared, file.name) != asked.shared.end()) {
                    stored.shared[file.name] = internal::digest_of(file);
                }
            }
            staging.hand_in(asked.checkpoint, place_.rank, contents);
        });
        link_->say(stored);
    };
    if (in_background) {
        internal::attempt(stored, [&] { storing_ = process::Thread(hand_in); });
    }
    if (!in_background || !stored.code.empty()) { // or no thread has started
        hand_in();
    }
    is_storing_ = false;
}

RTRAIN_DOOR bool ModuleLink::send(const boost::json::object& message) const {
    return process::send_all(own_end_, launch::control::frame_of(message));
}

} // namespace rtrain::program
