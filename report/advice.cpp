#include "report/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/plural.h"
#include "report/data_report.h"

namespace qtrain {
namespace {

double fraction_of(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

void advise_length(const DataSection& d, const DatasetStatistics& rows, std::vector<std::string>& out) {
  const std::int64_t p99 = rows.percentile(0.99), enough = enough_length(rows);
  if (d.packing || !d.max_length || *d.max_length <= std::max(2 * p99, enough)) return;
  out.push_back(fmt::format(
      "max_length {} is much longer than the rows: 99 % of them have at most {} tokens; max_length={} is enough",
      *d.max_length, p99, enough));
}

void advise_steps(const ResolvedConfig& config, const StepPlan& plan, std::vector<std::string>& out) {
  const TrainingSection& t = config.value.training;
  const double epochs = plan.epochs_after(plan.max_steps);
  if (t.max_steps > 0 && config.given("num_train_epochs") && std::abs(epochs - t.num_train_epochs) > 0.01)
    out.push_back(fmt::format("max_steps={} trains for {:.2f} epochs on these rows; num_train_epochs={} has no effect",
                              t.max_steps, epochs, t.num_train_epochs));
  else if (t.max_steps > 0 && epochs < 1)
    out.push_back(fmt::format("max_steps={} is only {:.2f} epochs, so some rows are never used", t.max_steps, epochs));
  if (plan.accumulation > plan.batches)
    out.push_back(fmt::format("gradient_accumulation_steps={}, but an epoch has only {}: each epoch is a single update",
                              plan.accumulation, counted(plan.batches, "micro-batch", "micro-batches")));
  if (t.max_steps <= 0 && t.warmup_steps >= static_cast<double>(plan.max_steps))
    out.push_back(fmt::format("warmup_steps={}, but the run has only {}: the learning rate never reaches its peak",
                              t.warmup_steps, counted(plan.max_steps, "update")));
}

void advise_events(const ResolvedConfig& config, const StepPlan& plan, std::vector<std::string>& out) {
  const TrainingSection& t = config.value.training;
  const auto never = [&](const char* key, double steps) {
    return config.given(key) && steps > static_cast<double>(plan.max_steps);
  };
  if (t.logging_strategy == EvalStrategy::steps && never("logging_steps", t.logging_steps))
    out.push_back(fmt::format("logging_steps={}, but the run has only {} updates: no loss is logged", t.logging_steps,
                              plan.max_steps));
  if (t.eval_strategy == EvalStrategy::steps && never("eval_steps", t.eval_steps.value_or(0)))
    out.push_back(fmt::format("eval_steps={}, but the run has only {} updates: it is evaluated only at the end",
                              *t.eval_steps, plan.max_steps));
  if (t.save_strategy == SaveStrategy::steps && never("save_steps", t.save_steps))
    out.push_back(fmt::format("save_steps={}, but the run has only {} updates: a checkpoint is saved only at the end",
                              t.save_steps, plan.max_steps));
}

// Full fine-tuning needs about a tenth of an adapter's learning rate, and SFTConfig's default is made for it. Only
// AdamW is checked, because other optimizers have learning rates of a different scale.
void advise_adapter_rate(const Config& config, std::vector<std::string>& out) {
  constexpr double kLow = 5e-5, kHigh = 5e-3;
  const TrainingSection& t = config.training;
  const bool adapts = config.lora.use_peft || config.model.adapter_name_or_path;
  if (!adapts || !find_optimizer(t.optim)->rule.starts_with("adamw") || t.learning_rate == 0) return;
  const double fastest = t.learning_rate * config.lora.loraplus_lr_ratio.value_or(1);
  if (fastest >= kLow && t.learning_rate <= kHigh) return;
  out.push_back(fmt::format("learning_rate={} is {} for LoRA: usual values are 1e-4 to 5e-4{}", t.learning_rate,
                            fastest < kLow ? "low" : "high",
                            fastest < kLow ? ", about ten times those for training all weights" : ""));
}

}  // namespace

std::vector<std::string> model_advice(const Config& config, const ModelConfig& model) {
  std::vector<std::string> out;
  if (config.training.fp16 && model.dtype == DType::bf16)
    out.emplace_back(
        "fp16=true, but the model's config.json says bfloat16: activations of such a model can overflow in float16; "
        "use bf16=true instead");
  advise_adapter_rate(config, out);
  return out;
}

std::vector<std::string> rows_advice(const DataSection& data, const DatasetStatistics& rows) {
  constexpr double kMuch = 0.05;  // fraction of the rows or tokens
  const double truncated = fraction_of(rows.truncated_rows, rows.source_rows),
               lost = fraction_of(rows.truncated_tokens, rows.tokens + rows.truncated_tokens);
  std::vector<std::string> out;
  if (std::max(truncated, lost) > kMuch && !rows.first_truncated.empty()) {
    const TruncatedRow& first = rows.first_truncated.front();
    out.push_back(fmt::format(
        "max_length={} truncates {} of {} ({:.0f} %), which loses {:.0f} % of the tokens; the first is {} with {}. "
        "99 % of the rows have at most {}: raise max_length, or shorten the rows",
        data.max_length.value_or(0), rows.truncated_rows, counted(rows.source_rows, "row"), 100 * truncated, 100 * lost,
        first.place, counted(first.length, "token"), counted(rows.percentile(0.99), "token")));
  }
  if (rows.dropped_rows > 0)
    out.push_back(fmt::format("left out {} of {}, because truncation or masking leaves no target in them",
                              rows.dropped_rows, counted(rows.source_rows, "row")));
  if (fraction_of(rows.untargeted_rows, rows.rows) > kMuch)
    out.push_back(fmt::format("{} of {} have no target, so they do not count in the loss", rows.untargeted_rows,
                              counted(rows.rows, "prepared row")));
  return out;
}

std::vector<std::string> data_advice(const ResolvedConfig& config, const DatasetStatistics& rows,
                                     const StepPlan& plan) {
  if (rows.source_rows == 0) return {};
  std::vector<std::string> out = rows_advice(config.value.data, rows);
  advise_length(config.value.data, rows, out);
  advise_steps(config, plan, out);
  advise_events(config, plan, out);
  return out;
}

}  // namespace qtrain
