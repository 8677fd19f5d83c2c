#include "train/run/final_result.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "config/fields.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "core/plural.h"
#include "core/sha256.h"
#include "core/utf8.h"
#include "optim/table.h"
#include "report/outcome_advice.h"
#include "report/run_record.h"
#include "train/checkpoint/manifest.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

Json values_in(const Json& recorded) {
  return recorded.is_object() ? recorded.value("values", Json()) : Json();
}

// Whether a config ends at this step or before, or early. If it ended later, its run was stopped.
bool is_config_of_done_run(const Json& recorded, const RunState& state) {
  const Json::json_pointer last("/run/max_steps");
  const bool ends = !recorded.contains(last) || !recorded[last].is_number_integer() || recorded[last] <= state.step;
  return ends || recorded_course(values_in(recorded), state.log_history).ends_run();
}

// Whether this start would give the result other weights or other text files than the recorded config does.
bool makes_another_result(const Run& run, const Json& recorded) {
  const Json values = values_json(run.config.value), before = values_in(recorded);
  for (const auto& [key, value] : values.items()) {
    if (key != "load_best_model_at_end" && on_resume(key) != OnResume::saved) continue;
    const Json::json_pointer at("/" + key + "/value");
    if (!before.contains(at) || before[at] != value) return true;
  }
  return recorded.at("run").at("files") != run.metadata.provenance.at("files");
}

// Whether the result of this step is there as it was saved, with its rows.
bool is_whole_result(const fs::path& output, std::int64_t step) {
  try {
    if (check_manifest(output, ManifestCheck::hashes, Beside::anything) != step) return false;
    const Json results = read_json(output / kTrainResults);
    const Json seal = results.is_object() ? results.value(kMetricsSeal, Json()) : Json();
    return seal.is_object() && seal.value("sha256", Json()) == sha256_of_file(output / kMetrics);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input) throw;
    return false;
  }
}

// As the leading rank sees it.
EarlierEnd own_earlier_end(const Run& run, const fs::path& output) {
  const fs::path file = output / kResolvedConfig;
  if (!path_exists(file)) return {};
  const Json recorded = json_in(read_text(file));
  if (!is_config_of_done_run(recorded, run.state)) return {};
  if (!recorded.contains(Json::json_pointer("/run/files"))) return {.has_config = true};  // damaged
  const bool same = !makes_another_result(run, recorded);
  return {.has_config = same,
          .has_result = same && !run.state.events_pending && is_whole_result(output, run.state.step)};
}

// The totals that transformers logs for a run; metrics.jsonl and train_results.json have more.
constexpr std::array<std::string_view, 6> kTotals{
    "train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos", "train_loss", "epoch"};

Json transformers_totals(const Run& run, const Pace& pace) {
  const RunState& state = run.state;
  const TrainingSection& t = run.training();
  const double steps = static_cast<double>(pace.steps);
  const auto rows_of_step =
      static_cast<double>(t.per_device_train_batch_size * t.gradient_accumulation_steps * run.ranks.size());
  const std::optional<double> loss = state.mean_loss_of_all();
  return {{"train_runtime", pace.seconds},
          {"train_samples_per_second", steps * rows_of_step / pace.seconds},
          {"train_steps_per_second", steps / pace.seconds},
          {"total_flos", state.flos},
          {"train_loss", loss ? Json(*loss) : Json()},
          {"epoch", run.plan().epochs_after(state.step)}};
}

Json more_totals(const Run& run, const Pace& pace, std::size_t allocated) {
  const MemoryPlan& memory = run.model.memory;
  const GraphCache& graphs = run.model.step->graphs();
  Json more{{"tokens_per_second", static_cast<double>(pace.tokens) / pace.seconds},
            {"peak_rss_mb", resident_memory().peak_mb},
            {"memory", {{"planned", memory.json()}, {"pinned", memory.pinned_json()}, {"allocated", allocated}}}};
  if (run.ended_early()) more[kEndedEarly] = run.state.evaluations.reason();
  if (graphs.replays() > 0) more["cuda_graphs"] = {{"kept", graphs.size()}, {"replays", graphs.replays()}};
  return more;
}

// Logs the totals of the steps that this process did, or the logged ones if no step was left to do; returns the
// contents of train_results.json.
Json log_totals(const Run& run, RunLog& run_log, Pace pace) {
  const Pace& logged = run_log.metrics().logged();
  if (pace.steps == 0 && logged.seconds > 0) pace = logged;
  const std::size_t used = allocated_bytes(run.ctx.device().kind).peak, planned = run.model.memory.total();
  if (used > planned)
    run.log.warn("memory: used {:.1f} MiB more than planned", static_cast<double>(used - planned) / kMib);
  Json totals = transformers_totals(run, pace);
  const Json more = more_totals(run, pace, used);
  run_log.add_row(totals, more);
  totals.update(more);
  return totals;
}

// For a run that did its last step in an earlier process: the totals it logged then, since checkpoints predate their
// totals.
Json earlier_totals(Json all, RunState& state) {
  Json row = Json::object();
  for (const std::string_view key : kTotals) row[std::string(key)] = all.value(key, Json());
  row["step"] = state.step;
  state.log_history.push_back(row);
  for (const char* key : {"step", "time", "startup_seconds", "sample_seconds", "save_seconds"}) all.erase(key);
  return all;
}

std::string summary_of(const Run& run, const Pace& pace, const Json& totals) {
  const std::string output = one_line(run.output_dir().string());
  const std::string early = fmt::format("ended early at step {} of {}: {}", run.state.step, run.plan().max_steps,
                                        run.state.evaluations.reason());
  if (pace.steps == 0 && run.ended_early()) return fmt::format("the run {}; the model is in {}", early, output);
  if (pace.steps == 0)
    return fmt::format("{} of {} were already done; the model is in {}", run.state.step,
                       counted(run.plan().max_steps, "step"), output);
  return fmt::format("done: {} in {}, {:.0f} tokens/s, train_loss {}, peak {:.0f} MiB; saved to {}{}",
                     counted(pace.steps, "step"), format_duration(pace.seconds),
                     totals["tokens_per_second"].get<double>(), finite_or_words(totals["train_loss"], 4),
                     totals["peak_rss_mb"].get<double>(), output, run.ended_early() ? "; " + early : "");
}

// Warns if the outcome of the whole run looks useless.
void warn_of_outcome(const Run& run, const RunLog& run_log) {
  Transformer& model = *run.model.setup.model;
  constexpr double kHighRate = 0.1;  // a hundred times the usual rate of adaptive optimizers
  const TrainingSection& t = run.training();
  const bool high = t.learning_rate >= kHighRate && find_optimizer(t.optim)->rule != "sgd";
  const auto of_losses =
      advice_on_losses(run_log.losses(), {.vocabulary = model.config().vocab_size, .rate_is_high = high});
  const auto of_adapter = advice_on_adapter(run.ctx, model, run.ranks);
  if (of_losses || of_adapter) run.log.warn("{}", of_adapter ? *of_adapter : *of_losses);
}

}  // namespace

EarlierEnd earlier_end(const Run& run, const OutputFolder& output, const std::optional<fs::path>& resumed) {
  if (!resumed || !output.holds(*resumed)) return {};
  if (run.state.step < run.plan().max_steps && !run.ended_early()) return {};
  EarlierEnd end = run.leads() ? own_earlier_end(run, output.path()) : EarlierEnd{};
  end.has_result = !broadcast_text(run.ctx, run.ranks, end.has_result ? "whole" : "").empty();
  return end;
}

FinalResult finish_run(Run& run, RunLog& run_log, RunCheckpoints& checkpoints, const EarlierEnd& earlier) {
  const Pace pace = run_log.pace();
  warn_of_outcome(run, run_log);
  const std::optional<Json>& before = run_log.metrics().totals();
  if (earlier.has_result) {
    const Json totals = before ? earlier_totals(*before, run.state) : Json::object();
    return {.totals = totals, .summary = summary_of(run, pace, totals)};
  }
  checkpoints.load_best();
  const Json totals = pace.steps == 0 && before ? earlier_totals(*before, run.state) : log_totals(run, run_log, pace);
  run_log.sync();
  save_final(run.objects(), run.output_dir(), totals);
  return {.totals = totals, .summary = summary_of(run, pace, totals)};
}

}  // namespace qtrain
