#include <fmt/format.h>

#include <array>
#include <string_view>

#include "core/plural.h"
#include "train/trainer.h"

/// How a run ends: with a checkpoint to go on from, or with its totals and the final model.
namespace qtrain {
namespace {

// What transformers logs of a whole run; metrics.jsonl and train_results.json say more.
constexpr std::array<std::string_view, 6> kTotals{
    "train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos", "train_loss", "epoch"};

}  // namespace

int Trainer::stop() {
  if (state_.step > first_step_ && (saved_step_ != state_.step || state_.events_pending)) save_now();
  log_.warn("stopped at step {} of {}; run the same command {}to go on", state_.step, plan_.max_steps,
            goes_on_by_itself_ ? "" : "with --resume auto ");
  return static_cast<int>(ErrorKind::stopped);
}

// Totals of the steps since the run began or went on, as train_results.json has them; of all that is logged where there
// was none any more.
Json Trainer::log_totals(double seconds) {
  Pace pace{.seconds = seconds, .steps = state_.step - first_step_, .tokens = state_.tokens - tokens_at_start_};
  if (pace.steps == 0 && metrics_->logged().seconds > 0) pace = metrics_->logged();
  const double steps = static_cast<double>(pace.steps), tokens = static_cast<double>(pace.tokens);
  const std::optional<double> loss = state_.mean_loss_of_all();
  Json totals{
      {"train_runtime", pace.seconds},
      {"train_samples_per_second",
       steps * static_cast<double>(t_.per_device_train_batch_size * t_.gradient_accumulation_steps) / pace.seconds},
      {"train_steps_per_second", steps / pace.seconds},
      {"total_flos", state_.flos},
      {"train_loss", loss ? Json(*loss) : Json()},
      {"epoch", plan_.epochs_after(state_.step)}};
  const std::size_t used = allocated_bytes(ctx_.device().kind).most, planned = memory_.total();
  if (used > planned)
    log_.warn("memory: {:.1f} MiB more were used than planned", static_cast<double>(used - planned) / kMib);
  Json more{{"tokens_per_second", tokens / pace.seconds},
            {"peak_rss_mb", resident_memory().peak_mb},
            {"memory", {{"planned", memory_.json()}, {"pinned", memory_.pinned_json()}, {"allocated", used}}}};
  if (step_->graphs().replays() > 0)
    more["cuda_graphs"] = {{"kept", step_->graphs().size()}, {"replays", step_->graphs().replays()}};
  add_row(totals, more);
  totals.update(more);
  return totals;
}

// The same of a run that did its last step before, as it was logged then: checkpoints are older than their totals.
Json Trainer::earlier_totals() {
  Json all = *metrics_->totals(), row = Json::object();
  for (const std::string_view key : kTotals) row[std::string(key)] = all.value(key, Json());
  row["step"] = state_.step;
  state_.log_history.push_back(row);
  for (const char* key : {"step", "time"}) all.erase(key);
  return all;
}

void Trainer::finish(double seconds) {
  restore_best();
  const bool done_before = first_step_ == state_.step;
  const Json totals = done_before && metrics_->totals() ? earlier_totals() : log_totals(seconds);
  metrics_->sync();
  save_final(objects(), output_, totals);
  results_.update(totals);
  summary_ = done_before
                 ? fmt::format("{} of {} done before; the model is in {}", state_.step,
                               counted(plan_.max_steps, "step"), output_.string())
                 : fmt::format("done: {} in {}, {:.0f} tokens/s, train_loss {}, peak {:.0f} MiB; saved to {}",
                               counted(state_.step - first_step_, "step"), format_duration(seconds),
                               totals["tokens_per_second"].get<double>(), finite_or_words(totals["train_loss"], 4),
                               totals["peak_rss_mb"].get<double>(), output_.string());
}

}  // namespace qtrain
