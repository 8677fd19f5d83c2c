#include "train/run/run_log.h"

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include "core/plural.h"
#include "core/secrets.h"
#include "plan/memory_plan.h"
#include "report/run_progress.h"

namespace qtrain {

namespace {

// How ranks divide the rows.
std::string shared_by(std::int64_t groups, int ranks) {
  if (ranks == 1) return groups == 1 ? "" : fmt::format(" on each of {} ranks", groups);
  return groups == 1 ? fmt::format(" on {} ranks together", ranks)
                     : fmt::format(" on each of {} groups of {} ranks", groups, ranks);
}

// Trackers of the tools in report_to other than TensorBoard.
std::vector<std::unique_ptr<Tracker>> make_trackers(const Run& run) {
  const std::filesystem::path output = run.output_dir();
  const std::int64_t step = run.state.step;
  std::vector<std::unique_ptr<Tracker>> trackers;
  const std::vector<std::string>& names = run.training().report_to;
  const auto is_named = [&](const char* name) { return std::ranges::find(names, name) != names.end(); };
  if (!run.leads() || (!is_named("wandb") && !is_named("mlflow"))) return trackers;
  TrackedRun tracked{.output = output, .resumed_step = step};
  const Json resolved = resolved_json(run.config);
  for (const auto& [key, entry] : resolved.at("values").items()) tracked.config[key] = entry.at("value");
  std::istringstream rows(step > 0 ? rows_until(output / "metrics.jsonl", step) : "");
  for (std::string line; std::getline(rows, line);)
    if (Json row = json_in(line); row.contains("time")) tracked.rows.push_back(std::move(row));
  if (is_named("wandb")) trackers.push_back(make_wandb_run(tracked));
  if (is_named("mlflow")) trackers.push_back(make_mlflow_run(tracked));
  return trackers;
}

}  // namespace

// TensorBoard rows up to and including the checkpoint's step are kept on resume.
RunLog::RunLog(Run& run)
    : run_(run),
      plan_(run.plan()),
      state_(run.state),
      events_(run.training(), run.plan()),
      metrics_(run.leads() ? MetricsFile(run.output_dir() / "metrics.jsonl", state_.step) : MetricsFile()),
      messages_(run.leads() ? RunMessages(run.output_dir() / kMessages, state_.step) : RunMessages()),
      trackers_(make_trackers(run)),
      first_step_(state_.step),
      first_tokens_(state_.tokens) {
  if (run.leads()) event_file_.emplace(run.output_dir() / "runs", state_.step == 0 ? 0 : state_.step + 1);
}

void RunLog::begin() {
  const std::int64_t batch = run_.training().per_device_train_batch_size,
                     batches = run_.training().gradient_accumulation_steps, ranks = run_.data_ranks();
  gauges_ = {.step = state_.step, .max_steps = plan_.max_steps, .tokens = state_.tokens};
  if (run_.prometheus != nullptr) run_.prometheus->set(gauges_);
  run_.log.info("training: {} of {} x {} {}{}, {:.2f} epochs", counted(plan_.max_steps, "step"), batch, batches,
                batch * batches == 1 ? "row" : "rows", shared_by(ranks, run_.sharing.size()),
                plan_.epochs_after(plan_.max_steps));
  messages_.take(run_.log, state_.step);
  starting_ = process_seconds();
  run_watch_ = {};
  row_watch_ = {};
}

Pace RunLog::pace_after(double seconds) const {
  return {.seconds = seconds, .steps = state_.step - first_step_, .tokens = state_.tokens - first_tokens_};
}

void RunLog::add_step(const StepOutcome& outcome) {
  losses_.add(outcome.loss);
  tokens_since_row_ += outcome.tokens;
  data_wait_ += outcome.data_wait;
  computing_ += outcome.computing;
  stepping_ += outcome.seconds - outcome.data_wait;
  run_.phases.finish();
  Progress progress = progress_of(state_, plan_.max_steps, pace_after(step_watch_.seconds()));
  progress.learning_rate = outcome.learning_rate;
  progress.epoch = plan_.epochs_after(state_.step);
  progress.memory_bytes = memory_in_use();
  progress.data_wait = data_wait_ / row_watch_.seconds();
  progress.logged = events_.logs_after(state_.step);
  publish(progress, outcome);
  run_.log.progress(progress);
  if (progress.logged) add_training_row(outcome);
}

void RunLog::publish(const Progress& p, const StepOutcome& outcome) {
  if (run_.prometheus == nullptr) return;
  gauges_ = {.step = p.step,
             .max_steps = p.total,
             .tokens = state_.tokens,
             .epoch = p.epoch,
             .loss = p.loss,
             .eval_loss = gauges_.eval_loss,
             .learning_rate = p.learning_rate,
             .grad_norm = outcome.grad_norm,
             .tokens_per_second = p.tokens_per_second,
             .eta_seconds = p.eta_seconds,
             .data_wait = p.data_wait,
             .resident_bytes = resident_memory().now_mb * kMib,
             .device_bytes = static_cast<double>(allocated_bytes(run_.ctx.device().kind).now)};
  run_.prometheus->set(gauges_);
}

// Memory of the device, which runs out first.
double RunLog::memory_in_use() const {
  const DeviceKind kind = run_.ctx.device().kind;
  return kind == DeviceKind::cuda ? static_cast<double>(allocated_bytes(kind).now) : resident_memory().now_mb * kMib;
}

void RunLog::add_training_row(const StepOutcome& outcome) {
  const double seconds = row_watch_.lap();
  const ResidentMemory memory = resident_memory();
  Json more{{"tokens_per_second", static_cast<double>(tokens_since_row_) / seconds},
            {"data_wait", data_wait_ / seconds},
            {"data_wait_seconds", data_wait_},
            {"step_seconds", stepping_},
            {"rss_mb", memory.now_mb},
            {"peak_rss_mb", memory.peak_mb},
            {"device_mb", static_cast<double>(allocated_bytes(run_.ctx.device().kind).now) / kMib}};
  if (run_.ranks.size() > 1 && run_.ctx.device().kind == DeviceKind::cpu) more.update(work_of_ranks());
  if (run_.scales_loss()) more["loss_scale"] = state_.loss_scale.value;
  const std::optional<double> loss = state_.mean_loss();
  Json row{{"epoch", plan_.epochs_after(state_.step)},
           {"grad_norm", finite_or_null(outcome.grad_norm)},
           {"learning_rate", outcome.learning_rate},
           {"loss", loss ? Json(*loss) : Json()},
           {"num_tokens", static_cast<double>(state_.tokens)}};
  if (const std::optional<double> balance = state_.mean_router_loss()) row["aux_loss"] = *balance;
  add_row(std::move(row), more);
  state_.begin_row();
  tokens_since_row_ = 0;
  data_wait_ = computing_ = stepping_ = 0;
}

// One slow rank keeps all the others waiting.
Json RunLog::work_of_ranks() const {
  std::vector<double> mine{computing_}, all(static_cast<std::size_t>(run_.ranks.size()));
  run_.ranks.all_gather(run_.ctx, view_of(std::span<const double>(mine), {1}),
                        view_of(std::span(all), {run_.ranks.size()}));
  const auto slowest = std::ranges::max_element(all);
  return {{"rank_seconds", all}, {"slowest_rank", slowest - all.begin()}};
}

void RunLog::add_evaluation(const Evaluation& e, double seconds) {
  run_.log.info("step {}: eval_loss {} over {} in {:.1f} s", state_.step, finite_or_words(e.loss(), 4),
                counted(e.target_tokens, "target"), seconds);
  gauges_.eval_loss = e.loss();
  if (run_.prometheus != nullptr) run_.prometheus->set(gauges_);
  Json row{{"epoch", plan_.epochs_after(state_.step)},
           {"eval_loss", finite_or_null(e.loss())},
           {"eval_runtime", seconds},
           {"eval_samples_per_second", static_cast<double>(e.rows) / seconds},
           {"eval_steps_per_second", static_cast<double>(e.batches) / seconds}};
  if (e.router_coefficient != 0) row["eval_aux_loss"] = finite_or_null(e.router_loss());
  add_row(std::move(row), {});
}

void RunLog::add_row(Json row, const Json& extra) {
  row["step"] = state_.step;
  state_.log_history.push_back(row);
  if (!extra.is_null()) row.update(extra);
  if (starting_ > 0) row["startup_seconds"] = std::exchange(starting_, 0);
  if (sampling_ > 0) row["sample_seconds"] = std::exchange(sampling_, 0);
  if (saving_ > 0) row["save_seconds"] = std::exchange(saving_, 0);
  if (run_.log.has_events()) run_.log.event("row", dump_json(row));  // events have their own time
  row["time"] = unix_time();
  metrics_.append(row);
  if (event_file_) event_file_->append(row);
  for (const auto& tracker : trackers_) tracker->append(row);
  messages_.take(run_.log, state_.step);
}

void RunLog::end_tracking(int exit_code) {
  for (const auto& tracker : trackers_) tracker->end(exit_code);
}

void RunLog::add_end(std::string_view level, const std::string& text) {
  messages_.take(run_.log, state_.step);
  messages_.add(level, without_credentials(text), state_.step);
}

}  // namespace qtrain
