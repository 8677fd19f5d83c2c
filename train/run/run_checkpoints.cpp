#include "train/run/run_checkpoints.h"

#include <fmt/format.h>

#include <utility>

#include "core/os/file.h"
#include "core/os/paths.h"
#include "core/utf8.h"
#include "train/checkpoint/manifest.h"

namespace qtrain {

namespace fs = std::filesystem;

namespace {

// Why a checkpoint cannot be loaded; empty if it can.
std::string problem_of(const fs::path& checkpoint) {
  if (!path_exists(checkpoint)) return checkpoint.string() + " no longer exists";
  try {
    check_manifest(checkpoint, ManifestCheck::hashes);
    return "";
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input) throw;
    return e.what();
  }
}

}  // namespace

RunCheckpoints::RunCheckpoints(Run& run)
    : run_(run), objects_(run.objects()), output_(run.output_dir()), policy_(run.training(), run.plan()) {}

std::optional<fs::path> RunCheckpoints::restore() {
  auto resumed = load_chosen();
  if (!resumed) return {};
  run_.model.runner->measure_rows(run_.ctx);  // with all ranks, because it gathers sharded weights
  if (!run_.state.best_checkpoint.empty()) run_.state.best_checkpoint = relocated_best(resumed->from).string();
  saved_step_ = run_.state.step;
  damaged_ = std::move(resumed->damaged);
  return resumed->from;
}

// The leading rank chooses; the others must find the same checkpoint.
std::optional<Resumed> RunCheckpoints::load_chosen() {
  run_.ctx.synchronize();  // so that no rank's queued device work waits while one rank loads alone
  std::optional<Resumed> resumed;
  if (run_.leads()) resumed = load_first_whole(objects_, run_.from, run_.log);
  const std::string chosen = broadcast_text(run_.ctx, run_.ranks, resumed ? resumed->from.string() : "");
  if (chosen.empty()) return {};
  if (!run_.leads()) resumed = load_first_whole(objects_, {.checkpoints = {chosen}, .named = true}, run_.log);
  const std::vector<std::string> manifests =
      gather_texts(run_.ctx, run_.ranks, read_text(fs::path(chosen) / "manifest.json"));
  for (std::size_t r = 1; r < manifests.size(); ++r)
    if (manifests[r] != manifests[0])
      fail(ErrorKind::input,
           {.cause = fmt::format("rank {} sees a different checkpoint under this name than rank 0", r),
            .place = chosen,
            .remedy = "output_dir must be the same folder for all ranks"});
  return resumed;
}

// Where the best checkpoint is now: in the output directory, or next to the one that the run resumes from.
fs::path RunCheckpoints::relocated_best(const fs::path& resumed) const {
  const fs::path name = fs::path(run_.state.best_checkpoint).filename();
  const fs::path here = output_ / name, beside = full_path(resumed).parent_path() / name;
  return path_exists(here) || !path_exists(beside) ? here : beside;
}

void RunCheckpoints::save() {
  RunState& state = run_.state;
  if (CheckpointPolicy::is_best(state))
    state.best_checkpoint = (output_ / fmt::format("checkpoint-{}", state.step)).string();
  saved_step_ = state.step;
  const fs::path saved = save_checkpoint(objects_, output_);
  if (!run_.leads()) return;
  std::erase(damaged_, saved.filename());
  run_.log.info("saved {}", one_line(saved.string()));
  run_.log.event("saved", dump_json({{"path", saved.string()}, {"step", run_.state.step}}));
  rotate(saved);
}

void RunCheckpoints::rotate(const fs::path& newest) const {
  std::optional<Rotation> rotation = policy_.rotation(run_.state, newest);
  if (!rotation) return;
  if (!run_.leads()) return;
  rotation->damaged = damaged_;
  rotate_checkpoints(output_, *rotation);
}

void RunCheckpoints::load_best() {
  const std::optional<fs::path> best = policy_.final_checkpoint(run_.state);
  if (!best) return;
  const std::string problem = problem_of(*best);
  // All ranks load it or none does, because each writes its part of the final model.
  for (const std::string& of_rank : gather_texts(run_.ctx, run_.ranks, problem))
    if (!of_rank.empty())
      return run_.log.warn("the final model is from the last step, not from the best checkpoint: {}", of_rank);
  const bool adapter_only = run_.model.setup.model->options().lora.has_value();
  load_weights(run_.ctx, *run_.model.runner,
               {.setup = run_.model.setup, .weights = adapter_only ? std::nullopt : best, .adapter = best}, run_.log);
  run_.log.info("the final model is from the best checkpoint (step {})", run_.state.best_step);
}

}  // namespace qtrain
