// SPDX-License-Identifier: Apache-2.0
/// @file
/// CreatorTrainer: a trainer made of creators, called step by step.
#pragma once

#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/config/typed_config.hpp>
#include <rtrain/creators/client.hpp>
#include <rtrain/creators/creator_run.hpp>
#include <rtrain/creators/data.hpp>
#include <rtrain/creators/options.hpp>
#include <rtrain/creators/stats.hpp>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace rtrain {

/// Trains what creators make, on the ranks of a backend, call by call.
///
/// A program that is started alone is the driver: its first call starts the ranks, which run main()
/// up to the CreatorTrainer, serve its calls there, and exit there. Under mpirun or srun, all ranks
/// run main(), and each call is collective. What ranks compute with must come from creators, the
/// config and set_data(): they do not run the rest of main().
///
/// The same command gets the answers of earlier calls from calls.jsonl in the run's directory, and
/// resumes with the next one. So main() must make the same calls again. Calls throw ConfigError
/// [RT-F31] otherwise, [RT-F34] after shutdown() or a failure, [RT-F35] in two threads at once,
/// [RT-C23] in a training function, and what Trainer::fit() throws.
template <class Options>
class CreatorTrainer;

template <class... Creators>
class CreatorTrainer<CreatorOptions<Creators...>> {
    using Options = CreatorOptions<Creators...>;

public:
    using Model = detail::ModelOf<Options>; ///< what get_model() returns

    /// Throws ConfigError [RT-F32] for a batch_size below num_replicas, [RT-F38] for the name of an
    /// unknown backend, and what Trainer's constructor throws.
    explicit CreatorTrainer(Options options)
        : run_(std::make_shared<const detail::CreatorRun<Options>>(std::move(options))),
          client_(std::make_unique<detail::CallClient>(
              run_->core(),
              [run = run_](Run& of_rank, launch::CallSource& calls) { run->serve(of_rank, calls); },
              detail::type_name<Options>())) {
        static_cast<void>(has_session);
    }

    /// Trains an epoch, or several, and returns their means. Each epoch is a report of the run.
    /// Throws ConfigError [RT-F32] for counts below 1, [RT-F40] once RunConfig::stop has stopped
    /// the run.
    TrainStats train(const TrainCall& call = {}) {
        return from_config<TrainStats>(client_->call("train", to_config(call)));
    }
    /// Evaluates the model on the validation data; a report of the run. Throws ConfigError [RT-F33]
    /// if there are none.
    ValidationStats validate() {
        return from_config<ValidationStats>(client_->call("validate", {}));
    }

    /// Steps the schedule, with SchedulerStep::manual; a Plateau needs the metric. Throws
    /// ConfigError [RT-F41] if there is none.
    void update_scheduler(std::optional<double> metric = std::nullopt) {
        Config arguments;
        if (metric) {
            arguments["metric"] = *metric;
        }
        (void)client_->call("update_scheduler", std::move(arguments));
    }

    /// Saves a checkpoint in the directory `path`, which is replaced if it is one. It has the
    /// model, the optimizer and the schedule, and what restore() needs to continue from it. Throws
    /// CheckpointError [RT-F39].
    void save(const std::filesystem::path& path) {
        (void)client_->call("save", {{"path", std::filesystem::absolute(path).string()}});
    }
    /// Loads a checkpoint of save(), or of a run of the same model: also the epoch, and the place
    /// in the data. If it does not fit, nothing changes. Throws CheckpointError [RT-K1 to RT-K3].
    void restore(const std::filesystem::path& path) {
        (void)client_->call("restore", {{"path", std::filesystem::absolute(path).string()}});
    }
    /// Loads only the weights.
    void load(const std::filesystem::path& path) {
        (void)client_->call("load", {{"path", std::filesystem::absolute(path).string()}});
    }

    /// Returns a model of this process with the newest weights. Throws CheckpointError [RT-F39] if
    /// the run saves none.
    [[nodiscard]] Model get_model() {
        const auto saved = client_->call("save", {});
        auto model = detail::held(run_->options().model_creator(run_->options().config));
        State{}
            .add("model", model)
            .load_from(Checkpoint(std::string(saved.at("checkpoint").as_string())));
        return model;
    }

    /// Replaces the data from the next call on. The rows are copied to the run's directory, from
    /// where ranks read them. Throws ConfigError [RT-F36] for columns other than tensors.
    void set_data(const data::Dataset& train,
                  const std::optional<data::Dataset>& validation = std::nullopt) {
        Config files{{"train", file_of("train")},
                     {"validation", validation ? file_of("validation") : ""}};
        if (client_->leads() && !client_->knows_next()) {
            write_rows(train, files.at("train"));
            if (validation) {
                write_rows(*validation, files.at("validation"));
            }
        }
        (void)client_->call("set_data", std::move(files));
    }

    /// The directory of the run.
    [[nodiscard]] std::filesystem::path path() const { return client_->run().path; }

    /// Ends the ranks; the destructor does the same. Throws what they throw at their end.
    void shutdown() { client_->shutdown(); }

private:
    /// Relative to the run's directory, which may be moved.
    [[nodiscard]] std::string file_of(const char* part) const {
        return detail::concat("data/", client_->next_number(), '-', part, ".safetensors");
    }
    void write_rows(const data::Dataset& rows, const boost::json::value& file) const {
        const auto path = std::filesystem::path(client_->run().path) / file.as_string().c_str();
        std::filesystem::create_directories(path.parent_path());
        detail::write_rows(rows, path);
    }

    /// Runs before main(), as in Trainer.
    static inline const bool has_session = (detail::TrainerCore::begin_session(), true);

    std::shared_ptr<const detail::CreatorRun<Options>> run_;
    std::unique_ptr<detail::CallClient> client_; ///< last: ends before what it serves
};

template <class... Creators>
CreatorTrainer(CreatorOptions<Creators...>) -> CreatorTrainer<CreatorOptions<Creators...>>;

} // namespace rtrain
