#include "train/run/run_data.h"

#include "core/plural.h"
#include "report/advice.h"
#include "report/metrics.h"
#include "text/template/date.h"
#include "train/checkpoint/checkpoint.h"
#include "train/setup/prepared_data.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

void require_training_rows(const DataSection& data) {
  if (!data.has_training_rows())
    fail(ErrorKind::usage,
         {.cause = "\"dataset_name\" is missing", .remedy = "set it to a JSONL file, a glob or a folder"});
}

// The date of the first checkpoint that has one, unless the config sets it.
std::optional<std::string> date_to_keep(const RunContext& run, const std::vector<fs::path>& checkpoints) {
  const auto saved = saved_template_date(checkpoints);
  return saved && clock_on(*saved) && !run.config.value.model.template_date ? saved : std::nullopt;
}

void load_rows(RunData& data, const RunContext& run, const std::vector<fs::path>& checkpoints) {
  const Stopwatch watch;
  DataPreparation preparation(run.config.value, run.ctx.pool(), run.log);
  if (data.text.reads_clock()) {
    const auto kept = date_to_keep(run, checkpoints);
    preparation.set_date(broadcast_text(run.ctx, run.ranks, kept.value_or(preparation.date())));
    data.template_date = preparation.date();
    run.log.info("the chat template uses the date {}{}", data.template_date, kept ? ", as in the checkpoint" : "");
  } else if (run.config.value.model.template_date) {
    run.ignored.add("template_date", "the chat template does not use the date");
  }
  if (!run.leads()) run.ranks.barrier(run.ctx);  // rank 0 fills the token cache for the others
  data.train = preparation.rows(Split::train);
  data.evaluation = preparation.rows(Split::evaluation);
  if (run.leads()) run.ranks.barrier(run.ctx);
  const DatasetStatistics& s = data.train.statistics();
  run.log.info("data: {}, {} after filtering and packing ({}, {}, {} truncated) in {:.1f} s",
               counted(s.source_rows, "row"), s.rows, counted(s.tokens, "token"), counted(s.target_tokens, "target"),
               s.truncated_rows, watch.seconds());
}

}  // namespace

void make_batches(RunData& data, const RunContext& run) {
  const TrainingSection& t = run.training();
  const int rank = run.data_rank(), world = run.data_ranks();
  const auto seed = static_cast<std::uint64_t>(t.data_seed.value_or(t.seed));
  data.train_loader = std::make_unique<Loader>(
      data.train,
      LoaderOptions{.batch_size = t.per_device_train_batch_size,
                    .rank = rank,
                    .world = world,
                    .drop_last = t.dataloader_drop_last,
                    .sampler = {.sampling = t.train_sampling_strategy,
                                .seed = seed,
                                .group = t.per_device_train_batch_size * t.gradient_accumulation_steps * world}});
  data.evaluation_loader =
      std::make_unique<Loader>(data.evaluation, LoaderOptions{.batch_size = t.per_device_eval_batch_size,
                                                              .rank = rank,
                                                              .world = world,
                                                              .sampler = {.sampling = Sampling::sequential}});
  data.plan = make_step_plan(run.training(), data.train_loader->batches_per_epoch(), run.data_ranks());
}

std::unique_ptr<RunData> load_run_data(const RunContext& run, const std::vector<fs::path>& checkpoints) {
  require_training_rows(run.config.value.data);
  auto data = std::make_unique<RunData>();
  data->text = load_template_folder(run.config.value);
  load_rows(*data, run, checkpoints);
  make_batches(*data, run);
  for (const std::string& advice : data_advice(run.config, data->train.statistics(), data->plan))
    run.log.warn("{}", advice);
  return data;
}

}  // namespace qtrain
