#include "app/commands/bench_step.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <optional>

#include "app/commands/read_files.h"
#include "app/commands/result_place.h"
#include "bench/cases/step_groups.h"
#include "config/check.h"
#include "config/remarks.h"
#include "core/formats/json_view.h"
#include "core/os/file.h"
#include "core/os/stop.h"
#include "core/os/temporary_folder.h"
#include "core/plural.h"
#include "core/rng.h"
#include "core/version.h"
#include "plan/memory_plan.h"
#include "train/setup/compute.h"
#include "train/tune/step_profile.h"

namespace qtrain {

const std::map<std::string_view, std::string_view>& step_case_texts();

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSmallLength = 32;

Json step_cases() {
  return parse_json(step_case_texts().at("step_cases"), "step_cases.json");
}

std::string names_of(const Json& cases) {
  std::string names;
  for (const auto& [name, values] : cases.items()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

/// A case with a model folder without weights and rows of random tokens, in a temporary folder.
class RandomCase {
 public:
  RandomCase(const std::string& name, const Arguments& args)
      : folder_(fs::temp_directory_path(), "qtrain-bench-", "set TMPDIR to a writable folder") {
    const Json document = step_cases();
    const Json& case_of = document["cases"][name];
    Json model = document["models"][case_of["model"].get<std::string>()];
    if (case_of.contains("layers")) model["num_hidden_layers"] = case_of["layers"];
    if (args.has("small")) model.update(document["small"]);
    Json config = case_of["config"];
    if (args.has("small")) config["max_length"] = kSmallLength;
    config.update(Json{{"model_name_or_path", (folder_.path() / "model").string()},
                       {"dataset_name", (folder_.path() / "rows.jsonl").string()},
                       {"output_dir", (folder_.path() / "out").string()},
                       {"per_device_train_batch_size", case_of["batch"]},
                       {"gradient_accumulation_steps", case_of["accumulation"]},
                       {"learning_rate", 1e-4},
                       {"save_strategy", "no"},
                       {"token_cache_dir", ""}});
    fs::create_directory(folder_.path() / "model");
    write_file(folder_.path() / "model/config.json", dump_json(model, 2));
    write_file(folder_.path() / "rows.jsonl", random_rows(config, model["vocab_size"].get<std::int64_t>()));
    write_file(file(), dump_json(config, 2));
  }
  fs::path file() const { return folder_.path() / "config.json"; }

 private:
  /// The rows of one optimizer step; every step uses the same ones.
  static std::string random_rows(const Json& config, std::int64_t vocabulary) {
    const auto rows = config["per_device_train_batch_size"].get<std::int64_t>() *
                      config["gradient_accumulation_steps"].get<std::int64_t>();
    const auto length = config["max_length"].get<std::int64_t>();
    std::string text;
    for (std::int64_t row = 0; row < rows; ++row) {
      std::vector<std::int64_t> ids;
      for (std::int64_t i = 0; i < length; ++i)
        ids.push_back(
            static_cast<std::int64_t>(philox(1, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(i))[0] %
                                      static_cast<std::uint64_t>(vocabulary)));
      text += dump_json(Json{{"input_ids", ids}, {"labels", ids}}) + "\n";
    }
    return text;
  }

  TemporaryFolder folder_;
};

/// Predicted milliseconds by group, for the GPU of the table, scaled to the number of measured layers.
using PredictedTimes = std::map<std::string, double, std::less<>>;

PredictedTimes predicted_of(const std::string& name) {
  const Json document = step_cases();
  const Json& case_of = document["cases"][name];
  PredictedTimes predicted;
  if (!case_of.contains("predicted_ms")) return predicted;
  const double share =
      case_of.contains("layers") ? case_of["layers"].get<double>() / case_of["predicted_layers"].get<double>() : 1;
  for (const auto& [group, ms] : case_of["predicted_ms"].items()) predicted[group] = share * ms.get<double>();
  return predicted;
}

struct StepGroup {
  std::string_view name;
  double seconds = 0;
  std::int64_t launches = 0;
  std::optional<double> predicted_ms = {};
};

std::vector<StepGroup> groups_of(const StepProfile& profile, std::int64_t adapter_rank,
                                 const PredictedTimes& predicted) {
  std::vector<StepGroup> groups;
  for (const std::string_view name : bench::step_groups()) {
    StepGroup group{.name = name};
    for (const LaunchTimes::Row& row : profile.rows)
      if (bench::step_group(row.name, row.detail, adapter_rank) == name) {
        group.seconds += row.seconds;
        group.launches += row.launches;
      }
    if (name == bench::kGaps) group.seconds = profile.gaps();
    if (const auto at = predicted.find(name); at != predicted.end()) group.predicted_ms = at->second;
    if (group.seconds > 0 || group.predicted_ms) groups.push_back(group);
  }
  return groups;
}

struct StepReport {
  std::string name;
  StepProfile profile;
  std::int64_t adapter_rank = 0;
  std::vector<StepGroup> groups;
};

std::string text_of(const StepReport& m) {
  constexpr std::size_t kShown = 20;
  const StepProfile& p = m.profile;
  std::string text = fmt::format("{} on {}: {:.3f} ms a step, {:.0f} tokens/s, {} tokens in {}\n", m.name, p.device,
                                 p.seconds * 1e3, static_cast<double>(p.tokens) / p.seconds, p.tokens,
                                 counted(p.micro_batches, "micro-batch", "micro-batches"));
  text += fmt::format("memory: {:.1f} MiB allocated, {:.1f} MiB planned\n\n", static_cast<double>(p.allocated) / kMib,
                      static_cast<double>(p.planned) / kMib);
  text += fmt::format("{:<24}{:>12}{:>9}{:>10}{:>14}\n", "part of the step", "ms", "share", "launches", "predicted ms");
  for (const StepGroup& g : m.groups)
    text += fmt::format("{:<24}{:>12.3f}{:>8.1f}%{:>10}{:>14}\n", g.name, g.seconds * 1e3, 100 * g.seconds / p.seconds,
                        g.launches, g.predicted_ms ? fmt::format("{:.1f}", *g.predicted_ms) : "-");
  text += fmt::format("\n{:<58}{:>12}{:>10}\n", "kernel", "ms", "launches");
  for (std::size_t i = 0; i < std::min(p.rows.size(), kShown); ++i) {
    const LaunchTimes::Row& row = p.rows[i];
    text += fmt::format("{:<58}{:>12.3f}{:>10}\n", row.detail.empty() ? row.name : row.name + " " + row.detail,
                        row.seconds * 1e3, row.launches);
  }
  if (p.rows.size() > kShown) text += fmt::format("and {} more (--json lists them all)\n", p.rows.size() - kShown);
  return text;
}

Json json_of(const StepReport& m) {
  const StepProfile& p = m.profile;
  Json json{{"version", kVersion},
            {"case", m.name},
            {"device", p.device},
            {"tokens", p.tokens},
            {"micro_batches", p.micro_batches},
            {"step_ms", p.seconds * 1e3},
            {"tokens_per_second", static_cast<double>(p.tokens) / p.seconds},
            {"attributed_ms", p.attributed() * 1e3},
            {"planned_bytes", p.planned},
            {"allocated_bytes", p.allocated},
            {"groups", Json::array()},
            {"kernels", Json::array()}};
  for (const StepGroup& g : m.groups)
    json["groups"].push_back({{"group", g.name},
                              {"ms", g.seconds * 1e3},
                              {"share", g.seconds / p.seconds},
                              {"launches", g.launches},
                              {"predicted_ms", g.predicted_ms ? Json(*g.predicted_ms) : Json()}});
  for (const LaunchTimes::Row& row : p.rows)
    json["kernels"].push_back({{"name", row.name},
                               {"detail", row.detail},
                               {"group", bench::step_group(row.name, row.detail, m.adapter_rank)},
                               {"launches", row.launches},
                               {"ms", row.seconds * 1e3}});
  return json;
}

/// The operand after "step": a case or a config file. Without one, the default case of the device.
std::string asked_for(const Arguments& args) {
  if (args.operands().size() > 1) return args.operand(1);
  return args.device() == "cpu" || !cuda_problem().empty() ? "smollm2-135m-lora" : "qwen3-0.6b";
}

ResolvedConfig config_of(const fs::path& file, const Arguments& args) {
  ResolvedConfig config = load_run_config(args, file);
  remark_on_device(config);
  tell_remarks(config, args.log());
  require_supported(config);
  if (config.value.run.ranks() > 1)
    fail(ErrorKind::usage,
         {.cause = fmt::format("the config is for {} ranks, but bench measures one device", config.value.run.ranks()),
          .remedy = "give nproc=1 nnodes=1"});
  return config;
}

}  // namespace

int run_bench_step(const Arguments& args) {
  const Json cases = step_cases()["cases"];
  StepReport m{.name = asked_for(args)};
  const bool known = cases.contains(m.name);
  std::error_code ignored;
  if (!known && !fs::exists(m.name, ignored))
    fail(ErrorKind::usage, {.cause = "there is no benchmark case or config file called \"" + m.name + "\"",
                            .remedy = "give a config file or one of these cases: " + names_of(cases)});
  std::optional<RandomCase> random;
  if (known) random.emplace(m.name, args);
  ResolvedConfig config = config_of(known ? random->file() : fs::path(m.name), args);
  std::optional<ResultFile> result = result_file(
      args, "json", known ? std::vector<fs::path>() : files_of_config({m.name, args.overrides()}, config.value));
  if (known) config.value.model.random_init = true;  // also for an adapter, because nothing is saved
  set_stop_answer("Stopping after this step.");
  m.profile = profile_step(config, {}, args.log());
  m.adapter_rank = config.value.lora.use_peft ? config.value.lora.lora_r : 0;
  m.groups =
      groups_of(m.profile, m.adapter_rank, known && !args.has("small") ? predicted_of(m.name) : PredictedTimes{});
  Json json = json_of(m);
  if (result) write_result(result->place_now(), dump_json(json, 2) + "\n");
  finish_or_stop();
  args.give({.text = text_of(m), .json = std::move(json)});
  return 0;
}

}  // namespace qtrain
