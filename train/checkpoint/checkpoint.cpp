#include "train/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <initializer_list>

#include "core/formats/safetensors.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "core/sha256.h"
#include "core/utf8.h"
#include "kernels/gemm_choices.h"
#include "model/hf_folder.h"
#include "train/checkpoint/checkpoint_choice.h"
#include "train/checkpoint/checkpoint_folders.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/run_identity.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kMasters = "master_weights.safetensors";
constexpr int kStateVersion = 2;                                    // version 1 lacked the identity of the run
constexpr const char* kFormerGemmChoices = "product_choices.json";  // in checkpoints before 0.1.0
constexpr const char* kGemmChoices = "gemm_choices.json";  // GEMM algorithms of a GPU; they decide the last bits

struct Member {
  const char* key;
  bool (Json::*is)() const noexcept;
};

// Reads an object and checks that these members exist with these types.
Json read_members(const fs::path& file, std::initializer_list<Member> members) {
  Json object = read_json(file);
  for (const auto& [key, is] : members)
    if (!object.contains(key) || !(object[key].*is)())
      fail(ErrorKind::input,
           {.cause = fmt::format("\"{}\" is missing or has the wrong type", key), .place = file.string()});
  return object;
}

// Whether base weights are trained at higher precision than the model files store.
bool has_masters(const TrainingObjects& run) {
  return run.setup.model->options().base == Update::trained && run.setup.saved_dtype != DType::f32;
}

void write_model(const TrainingObjects& run, const fs::path& folder, Writers writers) {
  const ModelFolder to{
      .folder = folder, .source = run.setup.source, .dtype = run.setup.saved_dtype, .writers = writers};
  if (run.setup.model->options().lora)
    save_adapter(run.ctx, *run.setup.model, to);
  else
    save_model(run.ctx, *run.setup.model, to);
  if (writers != Writers::other) save_text_folder(run.text, folder);
}

void write_trainer_state(const TrainingObjects& run, const fs::path& folder) {
  write_file(folder / kTrainerState, dump_json(trainer_state_json(run.state, run.training, run.plan), 2) + "\n");
}

// Writes the tensors, which may be sharded among ranks.
void write_tensors(const TrainingObjects& run, const fs::path& folder, Writers writers) {
  write_model(run, folder, writers);
  if (run.training.save_only_model) return;
  write_safetensors(folder / kOptimizer, tensors_of(run.ctx, run.optimizer.state()), writers);
  if (has_masters(run)) write_safetensors(folder / kMasters, tensors_of(run.ctx, run.setup.model->weights()), writers);
}

void write_states(const TrainingObjects& run, const fs::path& folder) {
  const GemmChoices* choices = gemm_choices(run.ctx);
  if (choices && !run.training.save_only_model) write_file(folder / kGemmChoices, dump_json(choices->used(), 1) + "\n");
  write_trainer_state(run, folder);
  Json state = run.state.to_json();
  state["format_version"] = kStateVersion;
  state["updates"] = run.optimizer.updates();
  state["resumable"] = !run.training.save_only_model;
  state["identity"] = run.identity;
  write_file(folder / kTrainingState, dump_json(state, 2) + "\n");
}

using WriteTensors = void (*)(const TrainingObjects& run, const fs::path& folder, Writers writers);

// Leading rank: writes its tensors, then waits while the others add theirs to the same files.
void lead_writing(const TrainingObjects& run, const fs::path& folder, WriteTensors write) {
  if (run.is_whole()) return write(run, folder, Writers::one);
  write(run, folder, Writers::first);
  broadcast_text(run.ctx, run.ranks, folder.string());
  run.ranks.barrier(run.ctx);
}

// Other ranks: write their shards, then wait until the folder has its final name.
void follow_writing(const TrainingObjects& run, WriteTensors write) {
  if (!run.is_whole()) {
    const std::string folder = broadcast_text(run.ctx, run.ranks, "");
    if (run.writes_part()) write(run, folder, Writers::other);
    run.ranks.barrier(run.ctx);
  }
  run.ranks.barrier(run.ctx);
}

// Call once the checkpoint is known to be intact.
void restore_choices(Ctx& ctx, const fs::path& checkpoint, Log& log) {
  GemmChoices* choices = gemm_choices(ctx);
  const bool is_new = path_exists(checkpoint / kGemmChoices);
  const fs::path file = checkpoint / (is_new ? kGemmChoices : kFormerGemmChoices);
  if (!choices || !path_exists(file)) return;
  if (!choices->restore(read_json(file), file.string()))
    log.warn(
        "the GEMM algorithms of {} were chosen with a different GPU, library or rules: results may differ in the last "
        "bits",
        checkpoint.string());
}

void require_same_run(const RunChanges& changes, const fs::path& checkpoint) {
  if (changes.refused.empty()) return;
  fail(ErrorKind::usage,
       {.cause = fmt::format("the checkpoint was written with {}", fmt::join(changes.refused, "; ")),
        .place = checkpoint.string(),
        .remedy = "use the config of that run, choose another output_dir, or start over with --resume never"});
}

// Checks the step recorded in each of these files of a checkpoint.
void require_step(std::int64_t step, const std::vector<std::pair<fs::path, Json>>& said) {
  for (const auto& [file, its] : said)
    if (its != step)
      fail(ErrorKind::input, {.cause = fmt::format("is of step {}, but the manifest is of step {}", its.dump(), step),
                              .place = file.string()});
}

// Advice for when no checkpoint can be resumed from.
std::string other_starts(const ResumeFrom& where) {
  if (where.named)
    return "--resume auto uses the newest intact checkpoint of output_dir; with --resume never, training starts over";
  return fmt::format("{}; name a different one with --resume DIR, or start over with --resume never",
                     where.checkpoints.size() > 1 ? "no checkpoint is intact" : "this is the only checkpoint");
}

}  // namespace

fs::path save_checkpoint(const TrainingObjects& run, const fs::path& output) {
  const fs::path final = output / fmt::format("checkpoint-{}", run.state.step);
  if (run.ranks.rank() != 0) {
    follow_writing(run, write_tensors);
    return final;
  }
  save_sealed({.target = final,
               .step = run.state.step,
               .write =
                   [&](const fs::path& folder) {
                     lead_writing(run, folder, write_tensors);
                     write_states(run, folder);
                   },
               .world_size = run.ranks.size()});
  run.ranks.barrier(run.ctx);
  return final;
}

namespace {

// Config and metrics stay outside the manifest: a resumed run writes its own config and more rows, while the old result
// stays valid until the run is done.
void write_results(const fs::path& output, const fs::path& folder, Json results) {
  if (path_exists(output / kResolvedConfig)) results[kConfigDigest] = sha256_of_file(output / kResolvedConfig);
  if (path_exists(output / kMetrics))
    results[kMetricsSeal] = {{"bytes", fs::file_size(output / kMetrics)},
                             {"sha256", sha256_of_file(output / kMetrics)}};
  write_file(folder / kTrainResults, dump_json(results, 2) + "\n");
}

}  // namespace

void save_final(const TrainingObjects& run, const fs::path& output, const Json& results) {
  if (run.ranks.rank() != 0) return follow_writing(run, write_model);
  save_sealed_into({.target = output,
                    .step = run.state.step,
                    .write =
                        [&](const fs::path& folder) {
                          lead_writing(run, folder, write_model);
                          write_trainer_state(run, folder);
                          write_results(output, folder, results);
                        },
                    .world_size = run.ranks.size()});
  run.ranks.barrier(run.ctx);
}

std::optional<std::string> saved_template_date(const std::vector<fs::path>& checkpoints) {
  for (const fs::path& checkpoint : checkpoints) {
    try {
      check_file(checkpoint, kTrainingState);
      const Json identity = read_members(checkpoint / kTrainingState, {{"identity", &Json::is_object}})["identity"];
      return template_date_of(identity);
    } catch (const Error& e) {  // load_first_whole reports what is wrong
      if (e.kind() != ErrorKind::input) throw;
    }
  }
  return {};
}

void load_checkpoint(TrainingObjects& run, const fs::path& checkpoint, Log& log) {
  const fs::path file = checkpoint / kTrainingState;
  if (!path_exists(file)) {
    const bool is_there = path_exists(checkpoint);
    const std::string others = is_there ? other_checkpoints(checkpoint) : "";  // added by the caller if missing
    fail(ErrorKind::input,
         {.cause = is_there ? fmt::format("not a qtrain checkpoint: it does not contain {}", kTrainingState)
                            : "no such folder",
          .place = checkpoint.string(),
          .remedy = others.empty() ? "name a checkpoint-N folder" : others});
  }
  const std::int64_t step = check_manifest(checkpoint, ManifestCheck::hashes_unless_stopped);
  const Json json = read_members(file, {{"format_version", &Json::is_number},
                                        {"resumable", &Json::is_boolean},
                                        {"updates", &Json::is_number_unsigned},
                                        {"identity", &Json::is_object}});
  if (json["format_version"] != kStateVersion)
    fail(ErrorKind::usage,
         {.cause = fmt::format("the checkpoint has format version {}, this program reads {}",
                               json["format_version"].dump(), kStateVersion),
          .place = file.string(),
          .remedy = "finish the run with the version of qtrain that started it, or start over with --resume never"});
  if (json["resumable"] == false)
    fail(ErrorKind::usage, {.cause = "the checkpoint was saved with save_only_model",
                            .place = checkpoint.string(),
                            .remedy = "start over with --resume never"});
  require_identity(json["identity"], file.string());
  const RunChanges changes = run_changes(json["identity"], run.identity);
  require_same_run(changes, checkpoint);
  run.state = RunState::from_json(json, file.string());
  const Json logged =
      read_members(checkpoint / kTrainerState, {{"log_history", &Json::is_array}, {"global_step", &Json::is_number}});
  require_step(step, {{file, run.state.step}, {checkpoint / kTrainerState, logged["global_step"]}});
  run.state.log_history = logged["log_history"];
  run.optimizer.set_updates(json["updates"]);
  load_state(run.ctx, run.optimizer.state(), checkpoint / kOptimizer);
  Transformer& model = run.runner.model();
  if (model.options().lora)
    load_trained_adapter(run.ctx, run.runner, run.setup, checkpoint / "adapter_model.safetensors");
  else
    load_parameters(run.ctx, model.weights(), has_masters(run) ? checkpoint / kMasters : checkpoint);
  run.runner.values_changed();
  run.runner.copies().fill_operands(run.ctx);
  if (!changes.told.empty()) log.info("resumed with {}", fmt::join(changes.told, ", "));
}

std::optional<Resumed> load_first_whole(TrainingObjects& run, const ResumeFrom& where, Log& log) {
  std::optional<Error> first;
  Resumed resumed;
  for (const fs::path& checkpoint : where.checkpoints) {
    try {
      load_checkpoint(run, checkpoint, log);
      restore_choices(run.ctx, checkpoint, log);
      resumed.from = checkpoint;
      return resumed;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::input) throw;
      if (where.checkpoints.size() > 1)
        log.warn("{} is damaged, skipping it: {}", one_line(checkpoint.string()), e.what());
      if (!first) first = e;
      resumed.damaged.push_back(checkpoint.filename());
    }
  }
  if (!first) return {};
  ErrorText text = first->text();
  text.remedy += (text.remedy.empty() ? "" : "; ") + other_starts(where);
  fail(ErrorKind::input, std::move(text));
}

}  // namespace qtrain
