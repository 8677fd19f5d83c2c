#include "train/run/run_samples.h"

#include "core/os/file.h"
#include "core/os/stop.h"
#include "core/plural.h"
#include "core/timeline.h"
#include "model/generation/generator.h"

namespace qtrain {

RunSamples::RunSamples(Run& run, std::int64_t resumed_step) : run_(run) {
  if (!run.leads()) return;
  const std::filesystem::path file = run.output_dir() / "samples.jsonl";
  const std::string kept = resumed_step > 0 ? rows_until(file, resumed_step) : "";
  if (kept.empty() && run.model.samples.empty()) {
    std::filesystem::remove(file);
    return;
  }
  write_file(file, kept);
  if (!run.model.samples.empty()) file_.emplace(file);
}

double RunSamples::take(std::int64_t step) {
  if (!file_) return 0;
  const Stopwatch watch;
  const timeline::Span span("samples");
  const SamplePrompts& samples = run_.model.samples;
  Generator generator(run_.ctx, *run_.model.runner, samples.generation());
  const auto stops = [](std::size_t, const std::vector<std::int32_t>&) { return stop_requested(); };
  const std::vector<GenerationResult> answers = generator.run(samples.requests, stops);
  if (stop_requested()) return watch.seconds();
  std::string rows;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const Json row{{"step", step},
                   {"time", unix_time()},
                   {"prompt", samples.shown[i]},
                   {"completion", samples.text.tokenizer->decode(answers[i].tokens, {.skip_special = true})},
                   {"finish_reason", name_of_finish(answers[i].finish)},
                   {"tokens", answers[i].tokens.size()}};
    rows += dump_json(row) + "\n";
  }
  file_->append(rows);
  file_->sync();  // before a checkpoint of a later step
  run_.log.info("step {}: answered {} in {:.1f} s", step, counted(static_cast<std::int64_t>(answers.size()), "prompt"),
                watch.seconds());
  return watch.seconds();
}

}  // namespace qtrain
