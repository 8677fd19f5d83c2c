#include "train/trainer.h"

#include "train/plan/compute.h"
#include "train/setup/text_folder.h"
#include "train/setup/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/remarks.h"
#include "core/plural.h"
#include "model/hf_folder.h"
#include "text/template/date.h"
#include "train/checkpoint/provenance.h"
#include "train/checkpoint/run_identity.h"
#include "train/plan/disk_plan.h"
#include "train/plan/machine.h"
#include "train/report/advice.h"
#include "train/report/run_progress.h"
#include "train/setup/adapter_names.h"
#include "train/setup/prepared_data.h"
#include "train/stop.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

// transformers' estimate of forward and backward: 6 for each weight that is no embedding's, an adapter's included.
double flos_per_token(Transformer& model) {
  std::int64_t weights = model.parameters() - model.config().vocab_size * model.config().hidden_size;
  for (const Param& p : model.adapter().all())
    if (!p.spec.name.ends_with("embed_tokens.weight")) weights += p.value.numel();
  return 6.0 * static_cast<double>(weights);
}

/// Where a run may go on from, the newest first.
std::vector<fs::path> checkpoints_for(const std::string& resume, const fs::path& output) {
  if (resume == "never") return {};
  if (resume != "auto") return {resume};
  std::vector<fs::path> found = find_checkpoints(output);
  std::reverse(found.begin(), found.end());
  return found;
}

}  // namespace

struct Trainer::Data {
  TextFolder text;            // without a tokenizer
  std::string template_date;  // empty: the template has no clock
  Dataset train, evaluation;
  std::unique_ptr<Loader> train_loader, evaluation_loader;
};

Trainer::Trainer(const ResolvedConfig& config, const std::string& resume, Log& log)
    : config_(config),
      t_(config.value.training),
      log_(log),
      output_(t_.output_dir),
      lock_(output_),
      ctx_(make_context(compute_choice(config.value), log)),
      goes_on_by_itself_(resume == "auto") {
  clear_leftovers(output_, resume, log);
  warn_of_unsealed();
  checkpoints_ = checkpoints_for(resume, output_);
  load_data();
  load_model();
  require_room();
  set_schedule();
  allocate();
  identify();
  if (resume == "never") start_over();
  go_on();
}

Trainer::~Trainer() = default;

void Trainer::load_data() {
  const Config& c = config_.value;
  if (!c.data.has_training_rows())
    fail(ErrorKind::usage, {.cause = "\"dataset_name\" is missing", .remedy = "name a JSONL file, a glob or a folder"});
  data_ = std::make_unique<Data>();
  data_->text = load_template_folder(c);
  Stopwatch watch;
  DataPreparation preparation(c, ctx_.pool(), log_);
  set_template_date(preparation);
  data_->train = preparation.rows(Split::train);
  data_->evaluation = preparation.rows(Split::evaluation);
  const DatasetStatistics& s = data_->train.statistics();
  log_.info("data: {}, after filters and packing {} ({}, {}, {} cut) in {:.1f} s", counted(s.source_rows, "row"),
            s.rows, counted(s.tokens, "token"), counted(s.target_tokens, "target"), s.truncated_rows, watch.seconds());
  const auto seed = static_cast<std::uint64_t>(t_.data_seed.value_or(t_.seed));
  data_->train_loader = std::make_unique<Loader>(
      data_->train,
      LoaderOptions{.batch_size = t_.per_device_train_batch_size,
                    .drop_last = t_.dataloader_drop_last,
                    .sampler = {.sampling = t_.train_sampling_strategy,
                                .seed = seed,
                                .group = t_.per_device_train_batch_size * t_.gradient_accumulation_steps}});
  data_->evaluation_loader = std::make_unique<Loader>(
      data_->evaluation,
      LoaderOptions{.batch_size = t_.per_device_eval_batch_size, .sampler = {.sampling = Sampling::sequential}});
  plan_ = make_step_plan(t_, data_->train_loader->batches_per_epoch());
  for (const std::string& advice : data_advice(config_, s, plan_)) log_.warn("{}", advice);
}

// A run that goes on tomorrow has the rows of today.
void Trainer::set_template_date(DataPreparation& preparation) {
  if (!data_->text.reads_clock()) {
    if (config_.value.model.template_date) say_no_effect("template_date", "the chat template does not write the date");
    return;
  }
  const auto saved = saved_template_date(checkpoints_);
  const bool keeps = saved && clock_on(*saved) && !config_.value.model.template_date;
  if (keeps) preparation.set_date(*saved);
  data_->template_date = preparation.date();
  log_.info("the chat template writes the date: {}{}", data_->template_date, keeps ? ", as in the checkpoint" : "");
}

void Trainer::load_model() {
  require_optimizer(config_.value, ctx_.device());
  setup_ = set_up_model(ctx_, training_request(config_.value));
  advice_on_weights(setup_);
  if (setup_.adapter) check_adapter_keys(config_, *setup_.model->options().lora, setup_.model->config());
  require_vocabulary(config_.value, data_->train, Split::train);
  require_vocabulary(config_.value, data_->evaluation, Split::evaluation);
  for (const std::string& advice : model_advice(config_.value, setup_.model->config())) log_.warn("{}", advice);
  flos_per_token_ = flos_per_token(*setup_.model);
  trained_ = setup_.model->trained();
  std::int64_t trained = 0;
  for (const Param* p : trained_) trained += p->value.numel();
  log_.info("model: {} with {:.1f} M parameters, {:.2f} M trained", setup_.model->config().model_type,
            static_cast<double>(setup_.model->parameters()) / 1e6, static_cast<double>(trained) / 1e6);
  if (const auto& how = setup_.model->options().quantization)
    log_.info("quantization: {:.1f} M of them in {}", static_cast<double>(setup_.model->linear_parameters()) / 1e6,
              how->describe());
}

// Hours of training are lost where the result cannot be written.
void Trainer::require_room() const {
  DiskPlan plan = plan_disk(t_, setup_, plan_);
  const auto there = static_cast<std::int64_t>(checkpoints_.size());  // the next one is written beside them
  if (goes_on_by_itself_ && plan.checkpoints > 0)
    plan.checkpoints = std::max<std::int64_t>(plan.checkpoints - there, 1);
  DiskVerdict verdict = judge_disk(plan, free_disk(output_));
  if (verdict.warning) log_.warn("{}: {}", output_.string(), *verdict.warning);
  if (!verdict.problem) return;
  verdict.problem->place = output_.string();
  fail(ErrorKind::disk, std::move(*verdict.problem));
}

void Trainer::set_schedule() {
  schedule_ = make_schedule({.kind = t_.lr_scheduler_type,
                             .learning_rate = t_.learning_rate,
                             .warmup_steps = warmup_steps(t_, plan_.max_steps),
                             .total_steps = plan_.max_steps,
                             .kwargs = t_.lr_scheduler_kwargs});
}

// Everything that a run needs is there before its first step, or the error says what does not fit.
void Trainer::allocate() {
  PlannedRun run = planned_run(config_.value, *setup_.model, workload_of(t_, data_->train, data_->evaluation),
                               target_here(ctx_.device(), ctx_.pool().size()));
  memory_ = plan_run(run, t_.gradient_checkpointing.policy);
  log_.info("memory: {:.0f} MiB ({}); recomputation: {}", static_cast<double>(memory_.total()) / kMib, memory_.table(),
            setup_.model->options().recompute);
  if (t_.operand_copies == KeptCopies::always && setup_.model->operand_copies().bytes() == 0)
    say_no_effect("operand_copies", "it is about float32 weights in 16-bit products on a GPU");
  if (run.optimizer.pages == Pages::where_needed)
    log_.info("optimizer state: {}", run.optimizer.placement == Placement::pinned
                                         ? "in the host's memory, copies run beside the work"
                                         : "on the device, which has room for it");
  scales_loss_ = ctx_.matmul() == MatmulPrecision::f16;
  const bool graphs = ctx_.device().kind == DeviceKind::cuda && config_.value.run.use_cuda_graphs.value_or(true);
  if (graphs) log_.info("CUDA graphs: on, for the {} sizes of micro-batches that were used last", kKeptGraphs);
  try {
    setup_.model->commit();
    optimizer_ = std::make_unique<Optimizer>(ctx_, make_rule(optimizer_options(t_)), trained_, run.optimizer.placement);
    optimizer_->allocate(ctx_);
    ops::reserve(ctx_, setup_.model->product_memory(run.work.passes()));
    step_ = std::make_unique<TrainStep>(
        ctx_, *setup_.model, *optimizer_,
        TrainStep::Options{.most_tokens = run.work.train.tokens, .graphs = graphs ? kKeptGraphs : 0});
    if (run.work.evaluation) evaluator_ = std::make_unique<Evaluator>(ctx_.device(), *data_->evaluation_loader);
  } catch (const Error& e) {  // others took what was there
    if (e.kind() != ErrorKind::memory) throw;
    run.target = target_here(ctx_.device(), ctx_.pool().size());
    if (fits(memory_plan(run, setup_.model->options().recompute), run.target)) throw;  // memory of the host
    fail(ErrorKind::memory, does_not_fit(run));
  }
  optimizer_->state().initialize(ctx_, 0);
}

void Trainer::identify() {
  std::vector<fs::path> files = model_files(setup_);
  for (fs::path& file : text_files(config_.value)) files.push_back(std::move(file));
  provenance_ = provenance(ctx_.device(), files);
  identity_ = run_identity({.config = config_.value,
                            .setup = setup_,
                            .train = data_->train,
                            .evaluation = data_->evaluation,
                            .template_date = data_->template_date,
                            .provenance = provenance_},
                           ctx_.matmul());
}

Json Trainer::circumstances() const {
  Json run = provenance_;
  run["folder"] = fs::current_path().string();  // that relative names are about
  run["seed"] = t_.seed;
  run["data_seed"] = t_.data_seed.value_or(t_.seed);
  run["training_data"] = fmt::format("{:016x}", data_->train.fingerprint());
  if (evaluator_) run["evaluation_data"] = fmt::format("{:016x}", data_->evaluation.fingerprint());
  return run;
}

TrainingObjects Trainer::objects() {
  return {.ctx = ctx_,
          .setup = setup_,
          .text = data_->text,
          .optimizer = *optimizer_,
          .state = state_,
          .training = t_,
          .plan = plan_,
          .identity = identity_};
}

void Trainer::say_no_effect(const std::string& key, const std::string& reason) {
  if (!config_.given(key)) return;
  const Remark remark = ignored_key(config_, key, reason);
  inert_[key] = entry_of(remark);
  log_.info("{}", line_of(remark));
}

void Trainer::run_window(StepResult& r, std::int64_t targets) {
  const std::int64_t epoch = plan_.epoch_of(state_.step);
  const double scale = 1.0 / static_cast<double>(std::max<std::int64_t>(targets, 1));
  const double loss_scale = scales_loss_ ? state_.loss_scale.value : 1;
  step_->begin();
  for (std::int64_t i = plan_.first_batch(state_.step); i < plan_.end_batch(state_.step); ++i) {
    Stopwatch wait;
    const Batch batch = prefetcher_->take({.epoch = epoch, .index = i});
    data_wait_ += wait.seconds();
    r.tokens += batch.size();
    if (batch.target_count == 0) continue;
    step_->add(batch, {.scale = scale * loss_scale, .dropout_seed = dropout_seed(t_.seed, state_.step, i)});
  }
  const TrainStep::Sums sums =
      step_->finish({.learning_rate = r.learning_rate, .max_grad_norm = t_.max_grad_norm, .loss_scale = loss_scale});
  r.loss = sums.loss * scale;
  r.grad_norm = std::sqrt(sums.squares) / loss_scale;
}

Trainer::StepResult Trainer::train_step() {
  StepResult r;
  // As transformers: an update that overflowed does not count for the schedule.
  r.learning_rate = t_.learning_rate * lr_factor(schedule_, state_.step - state_.overflows);
  const std::int64_t epoch = plan_.epoch_of(state_.step);
  std::int64_t targets = 0;
  for (std::int64_t i = plan_.first_batch(state_.step); i < plan_.end_batch(state_.step); ++i)
    targets += data_->train_loader->global_targets(epoch, i);
  // As transformers: a window without targets has zero gradients, and the optimizer still steps.
  if (targets == 0) log_.warn("step {}: no token of the window is a target", state_.step + 1);
  run_window(r, targets);
  if (settle(r)) optimizer_->set_updates(optimizer_->updates() + 1);
  return r;
}

// Whether the step was applied. One with NaN or Inf is not; several in a row end the run before a checkpoint can hold
// them.
bool Trainer::settle(const StepResult& r) {
  const bool finite = std::isfinite(r.loss) && std::isfinite(r.grad_norm);
  if (scales_loss_ && lower_scale(r)) return false;
  if (finite) {
    state_.nonfinite_in_row = 0;
    return true;
  }
  refuse_step(r);
  return false;
}

// In float16 gradients overflow now and then while the scale of the loss is high.
bool Trainer::lower_scale(const StepResult& r) {
  const bool finite = std::isfinite(r.grad_norm), high = state_.loss_scale.value > 1;
  state_.loss_scale.count(finite);
  if (finite || !high || !std::isfinite(r.loss)) return false;
  ++state_.overflows;
  log_.info("step {}: gradients overflow in float16; the update is skipped, the loss scale becomes {}", state_.step + 1,
            state_.loss_scale.value);
  return true;
}

void Trainer::refuse_step(const StepResult& r) {
  std::string tensor = "the loss";
  for (Param* p : trained_)
    if (std::isfinite(r.loss) && !step_->has_finite_gradient(*p)) {
      tensor = "the gradient of " + p->spec.name;
      break;
    }
  ++state_.nonfinite_in_row;
  log_.warn("step {}: {} is not finite; the update is skipped", state_.step + 1, tensor);
  if (state_.nonfinite_in_row >= config_.value.run.max_nonfinite_steps)
    fail(ErrorKind::non_finite,
         {.cause = fmt::format("{} is not finite in {} steps in a row", tensor, state_.nonfinite_in_row),
          .place = fmt::format("step {}", state_.step + 1),
          .remedy = "lower learning_rate, or check the data; earlier checkpoints are intact"});
}

void Trainer::add_row(Json row, const Json& extra) {
  row["step"] = state_.step;
  state_.log_history.push_back(row);
  if (!extra.is_null()) row.update(extra);
  row["time"] = unix_time();
  metrics_->append(row);
  events_->append(row);
}

void Trainer::log_row(const StepResult& r) {
  const double seconds = log_watch_.lap();
  const ResidentMemory memory = resident_memory();
  Json more{{"tokens_per_second", static_cast<double>(tokens_since_log_) / seconds},
            {"data_wait", data_wait_ / seconds},
            {"data_wait_seconds", data_wait_},
            {"rss_mb", memory.now_mb},
            {"peak_rss_mb", memory.peak_mb},
            {"device_mb", static_cast<double>(allocated_bytes(ctx_.device().kind).now) / kMib}};
  if (scales_loss_) more["loss_scale"] = state_.loss_scale.value;
  add_row({{"epoch", plan_.epochs_after(state_.step)},
           {"grad_norm", finite_or_null(r.grad_norm)},
           {"learning_rate", r.learning_rate},
           {"loss", state_.mean_loss() ? Json(*state_.mean_loss()) : Json()},
           {"num_tokens", static_cast<double>(state_.tokens)}},
          more);
  state_.begin_row();
  tokens_since_log_ = 0;
  data_wait_ = 0;
}

void Trainer::finish_step(const StepResult& r) {
  ++state_.step;
  state_.tokens += r.tokens;
  state_.flos += flos_per_token_ * static_cast<double>(r.tokens);
  tokens_since_log_ += r.tokens;
  state_.add_loss(r.loss);
  Progress progress = progress_of(state_, plan_.max_steps,
                                  {.seconds = step_watch_.seconds(),
                                   .steps = state_.step - first_step_,
                                   .tokens = state_.tokens - tokens_at_start_});
  progress.learning_rate = r.learning_rate;
  progress.logged = due(t_.logging_strategy, t_.logging_steps) || (t_.logging_first_step && state_.step == 1);
  log_.progress(progress);
  if (progress.logged) log_row(r);
}

// From the next step on.
void Trainer::start_prefetching() {
  const auto places = [this, step = state_.step, batch = plan_.first_batch(state_.step)]() mutable {
    if (batch >= plan_.end_batch(step)) batch = plan_.first_batch(++step);
    return step < plan_.max_steps ? std::optional(BatchPlace{.epoch = plan_.epoch_of(step), .index = batch++})
                                  : std::nullopt;
  };
  const auto threads = static_cast<int>(std::max<std::int64_t>(t_.dataloader_num_workers, 1));
  const int ahead = threads * static_cast<int>(t_.dataloader_prefetch_factor.value_or(2));
  prefetcher_ = std::make_unique<Prefetcher>(*data_->train_loader,
                                             Prefetcher::Options{.threads = threads, .ahead = ahead}, places);
}

int Trainer::run() {
  first_step_ = state_.step;
  tokens_at_start_ = state_.tokens;
  set_stop_answer("stopping after this step; again leaves without saving");
  const std::int64_t batch = t_.per_device_train_batch_size, batches = t_.gradient_accumulation_steps;
  log_.info("training: {} of {} x {} {}, {:.2f} epochs", counted(plan_.max_steps, "step"), batch, batches,
            batch * batches == 1 ? "row" : "rows", plan_.epochs_after(plan_.max_steps));
  run_watch_ = {};
  log_watch_ = {};
  start_prefetching();
  if (t_.eval_on_start && state_.step == 0) evaluate_now();
  if (state_.events_pending) run_events();
  step_watch_ = {};
  while (!last_step() && !stop_requested()) {
    finish_step(train_step());
    run_events();
  }
  results_ = {{"output_dir", output_.string()}, {"step", state_.step}, {"max_steps", plan_.max_steps}};
  if (!last_step() || state_.events_pending) return stop();
  set_stop_answer("the last step is done, the model is being saved; again leaves without saving");
  finish(run_watch_.seconds());
  return 0;
}

}  // namespace qtrain
