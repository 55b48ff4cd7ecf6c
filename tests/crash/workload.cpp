// SPDX-License-Identifier: Apache-2.0
#include "workload.hpp"

#include <rtrain/storage/file/file.hpp>
#include <rtrain/track/files/json_lines.hpp>
#include <rtrain/track/tensorboard/event_file.hpp>
#include <rtrain/track/tensorboard/tensorboard.hpp>
#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

namespace crash {
namespace {

/// What training has made after `step` steps.
struct Model {
    explicit Model(std::int64_t elements) : elements_(elements) { set(0); }

    void set(int step) {
        step_ = step;
        const auto at = static_cast<double>(step);
        weights_ = torch::arange(elements_, torch::kFloat) + at * 1000;
        bias_ = torch::full({3, 5}, at, torch::kDouble);
        counts_ = torch::full({7}, step, torch::kLong);
        text_ = "step " + std::to_string(step);
    }
    void references(rtrain::State& state) {
        state.add("step", step_).add("weights", weights_).add("bias", bias_);
        state.add("counts", counts_).add("text", text_);
    }
    [[nodiscard]] int step() const { return step_; }

    /// What is not as set(step()) makes it.
    [[nodiscard]] std::vector<std::string> contradictions() const {
        Model right(elements_);
        right.set(step_);
        std::vector<std::string> wrong;
        const auto compare = [&](const char* name, const at::Tensor& a, const at::Tensor& b) {
            if (a.scalar_type() != b.scalar_type() || !a.equal(b)) {
                wrong.push_back(rtrain::detail::concat(name, " is not that of step ", step_));
            }
        };
        compare("weights", weights_, right.weights_);
        compare("bias", bias_, right.bias_);
        compare("counts", counts_, right.counts_);
        if (text_ != right.text_) {
            wrong.push_back(rtrain::detail::concat("text is \"", text_, "\" at step ", step_));
        }
        return wrong;
    }

private:
    std::int64_t elements_;
    int step_ = 0;
    at::Tensor weights_, bias_, counts_;
    std::string text_;
};

/// The user's own files: a step number here, bytes that belong to it two directories further down.
std::string bytes_of(int step) {
    return std::string(1500, static_cast<char>('a' + step % 26));
}

rtrain::Checkpoint own_files(const std::filesystem::path& directory, int step) {
    std::filesystem::remove_all(directory);
    std::filesystem::create_directories(directory / "deep/er");
    rtrain::storage::OutputFile(directory / "step").write(std::to_string(step));
    rtrain::storage::OutputFile(directory / "deep/er/bytes").write(bytes_of(step));
    const auto checkpoint = rtrain::Checkpoint::from_directory(directory);
    checkpoint.set_metadata({{"step", step}});
    return checkpoint;
}

int read_own_files(const rtrain::Checkpoint& checkpoint, std::vector<std::string>& wrong) {
    const auto directory = checkpoint.as_directory();
    const int step = std::stoi(rtrain::storage::read_file(directory / "step"));
    if (rtrain::storage::read_file(directory / "deep/er/bytes") != bytes_of(step)) {
        wrong.push_back("deep/er/bytes is not that of step " + std::to_string(step));
    }
    const auto metadata = checkpoint.metadata();
    if (!metadata.contains("step") || metadata.at("step") != step) {
        wrong.push_back("the metadata is not that of step " + std::to_string(step));
    }
    return step;
}

rtrain::TrainerOptions options_of(const Job& job) {
    rtrain::TrainerOptions options;
    options.config["lr"] = 0.1;
    options.config["name"] = "crash";
    options.run.name = "r";
    options.run.storage_path = job.storage / "exp";
    options.run.checkpoint.num_to_keep = kept;
    if (job.has_trackers) {
        options.run.trackers = {rtrain::track::JsonLines(copy_file), rtrain::track::TensorBoard{}};
    }
    if (job.resume_from) {
        options.resume_from = rtrain::Checkpoint(*job.resume_from);
    }
    return options;
}

template <class Policy>
void run(const Job& job, Outcome& outcome) {
    const bool in_place = job.saving == Saving::in_place;
    const bool own = in_place || job.saving == Saving::directory;
    rtrain::Trainer<rtrain::backend::Local, rtrain::data::Sharded, Policy> trainer(options_of(job));
    trainer.fit([&](auto& worker) {
        Model model(job.elements);
        rtrain::State state;
        model.references(state);
        const auto begin = [&](int first_step) {
            outcome.resumed = outcome.last = first_step;
            if (job.on_training) {
                job.on_training(first_step);
            }
        };
        const auto step_once = [&](int step) {
            if (job.throw_after != 0 && step > job.throw_after) {
                throw std::runtime_error("the training function has had enough");
            }
            model.set(step);
            const rtrain::Config metrics{{"step", step}, {"attempt", job.attempt}};
            bool reporting = false; // what goes wrong before is the user's
            try {
                std::optional<rtrain::Checkpoint> files;
                if (own && saves(step)) {
                    files = own_files(in_place ? worker.run_path() / ("own_" + std::to_string(step))
                                               : job.scratch / "own",
                                      step);
                }
                reporting = true;
                if (!saves(step)) {
                    worker.report(metrics);
                } else if (in_place) {
                    rtrain::ReportOptions options;
                    options.checkpoint_upload_mode = rtrain::CheckpointUploadMode::no_upload;
                    worker.report(metrics, *files, options);
                } else if (own) {
                    worker.report(metrics, *files);
                } else {
                    worker.report(metrics, state);
                }
            } catch (const std::exception& error) {
                if (reporting && dynamic_cast<const rtrain::Error*>(&error) == nullptr) {
                    outcome.typed = false;
                    outcome.error = error.what();
                }
                if (!job.go_on_after_errors) {
                    throw;
                }
                if (job.on_failed) {
                    job.on_failed(step, reporting);
                }
                return;
            }
            outcome.last = step;
            if (job.on_returned) {
                job.on_returned(step, saves(step));
            }
        };
        const auto end = [&] {
            return job.steps_more != 0 ? outcome.resumed + job.steps_more : job.until;
        };
        if (own) {
            const auto checkpoint = worker.checkpoint();
            begin(checkpoint ? read_own_files(*checkpoint, outcome.mixed) : 0);
            for (int step = outcome.resumed + 1; step <= end(); ++step) {
                step_once(step);
            }
            return;
        }
        const bool had = worker.checkpoint().has_value();
        const bool restored = worker.restore(state);
        outcome.mixed = model.contradictions();
        if (had != restored) {
            outcome.mixed.push_back("restore() says that there was no checkpoint");
        }
        begin(model.step());
        int expected = outcome.resumed;
        for (const int epoch : worker.epochs(end(), state)) { // epoch e makes step e + 1
            if (epoch != expected++) {
                outcome.mixed.push_back(
                    rtrain::detail::concat("epoch ", epoch, " begins behind step ", model.step()));
            }
            step_once(epoch + 1);
        }
    });
}

} // namespace

std::string name_of(Saving saving) {
    switch (saving) {
    case Saving::sync:
        return "sync";
    case Saving::async:
        return "async";
    case Saving::sharded:
        return "sharded";
    case Saving::directory:
        return "directory";
    case Saving::in_place:
        return "in_place";
    }
    std::abort();
}

Outcome train(const Job& job) {
    Outcome outcome;
    try {
        switch (job.saving) {
        case Saving::sync:
        case Saving::directory:
        case Saving::in_place:
            run<rtrain::checkpoint::Sync>(job, outcome);
            break;
        case Saving::async:
            run<rtrain::checkpoint::Async>(job, outcome);
            break;
        case Saving::sharded:
            run<rtrain::checkpoint::Sharded>(job, outcome);
            break;
        }
    } catch (const rtrain::Error& error) {
        outcome.error_code = error.code();
        outcome.error = error.what();
    } catch (const std::exception& error) {
        outcome.error_code = "untyped";
        outcome.error = error.what();
        outcome.typed = false;
    }
    return outcome;
}

namespace {

Run::Report report_of(const rtrain::Config& line) {
    const auto number = [&](const char* name) { return line.at(name).to_number<int>(); };
    return {number("training_iteration"), number("step"), number("attempt")};
}

} // namespace

Run look(const std::filesystem::path& path) {
    const auto result = rtrain::Result::from_path(path);
    Run run;
    for (const auto& line : result.metrics_history) {
        run.reports.push_back(report_of(line));
    }
    for (const auto& [checkpoint, metrics] : result.best_checkpoints) {
        run.checkpoints.emplace_back(checkpoint.path, report_of(metrics).step);
    }
    if (result.error) {
        run.error_code = result.error->code();
    }
    return run;
}

std::vector<Run::Report> readable_reports(const std::filesystem::path& file) {
    std::vector<Run::Report> reports;
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
        try {
            reports.push_back(report_of(rtrain::json::parse(line).as_object()));
        } catch (const std::exception&) {
            continue;
        }
    }
    return reports;
}

std::vector<Run::Report> shown_by_tensorboard(const std::filesystem::path& run) {
    namespace event = rtrain::track::event;
    std::set<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(run / "tensorboard")) {
        files.insert(entry.path());
    }
    std::map<int, Run::Report> shown;
    const auto show = [&](int iteration, std::string_view value) {
        std::string tag;
        float number = 0;
        event::Fields fields(value);
        while (const auto field = fields.next()) {
            if (field->number == 1) {
                tag = field->bytes;
            } else if (field->number == 2) {
                std::memcpy(&number, field->bytes.data(), sizeof number);
            }
        }
        Run::Report& report = shown[iteration];
        report.iteration = iteration;
        if (tag == "step" || tag == "attempt") {
            (tag == "step" ? report.step : report.attempt) = static_cast<int>(number);
        }
    };
    for (const auto& file : files) {
        std::ifstream input(file, std::ios::binary);
        while (const auto text = event::next_event(input)) {
            const event::Seen seen = event::look_at(*text);
            const auto iteration = static_cast<int>(seen.step);
            if (seen.is_start) {
                shown.erase(shown.lower_bound(iteration), shown.end());
            }
            event::Fields fields(*text);
            for (auto field = fields.next(); field; field = fields.next()) {
                event::Fields values(field->number == 5 && iteration > 0 ? field->bytes : "");
                while (const auto value = values.next()) {
                    show(iteration, value->bytes);
                }
            }
        }
    }
    std::vector<Run::Report> reports;
    for (const auto& [iteration, report] : shown) {
        reports.push_back(report);
    }
    return reports;
}

void prepare_process() {
    torch::set_num_threads(1); // a pool of threads would not survive fork()
    // As a rank of mpirun's, a process leaves no notes for others in the temporary directory.
    ::setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
}

} // namespace crash
