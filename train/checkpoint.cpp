#include "train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/file.h"
#include "core/safetensors.h"
#include "model/hf_folder.h"
#include "train/manifest.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kState = "training_state.json";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kMasters = "master_weights.safetensors";

// A folder goes away under another name first, so that a checkpoint is whole or not there.
void remove_folder(const fs::path& folder) {
  const fs::path doomed = folder.string() + ".removed";
  fs::remove_all(doomed);
  fs::rename(folder, doomed);
  fs::remove_all(doomed);
}

// Trained base weights that the model files hold rounded.
bool has_masters(const TrainingObjects& run) {
  return run.setup.model->options().base == Update::trained && run.setup.saved_dtype != DType::f32;
}

void write_parts(const TrainingObjects& run, const fs::path& folder) {
  save_final(run, folder);
  if (!run.training.save_only_model) {
    write_safetensors(folder / kOptimizer, tensors_of(run.ctx, run.optimizer.state()));
    if (has_masters(run)) write_safetensors(folder / kMasters, tensors_of(run.ctx, run.setup.model->weights()));
  }
  write_file(folder / "trainer_state.json", dump_json(trainer_state_json(run.state, run.training, run.plan), 2) + "\n");
  Json state = run.state.to_json();
  state["format_version"] = 1;
  state["updates"] = run.optimizer.updates();
  state["resumable"] = !run.training.save_only_model;
  state["identity"] = run.identity;
  write_file(folder / kState, dump_json(state, 2) + "\n");
  write_manifest(folder, run.state.step);
}

// Sizes only: contents are looked at by the run that goes on from them.
bool is_whole(const fs::path& checkpoint) {
  try {
    check_manifest(checkpoint, ManifestCheck::sizes);
    return true;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input) throw;
    return false;
  }
}

void require_same_run(const Json& saved, const Json& now, const std::string& place) {
  const auto value = [](const Json& of, const std::string& key) { return of.contains(key) ? of[key] : Json("none"); };
  for (const Json* run : {&now, &saved})
    for (const auto& [key, ignored] : run->items())
      if (const Json was = value(saved, key), is = value(now, key); was != is)
        fail(ErrorKind::usage,
             {.cause =
                  fmt::format("the checkpoint was made with {} = {}, the config says {}", key, was.dump(), is.dump()),
              .place = place,
              .remedy = "use the config of that run, another output_dir, or --resume never to start over"});
}

}  // namespace

void save_final(const TrainingObjects& run, const fs::path& folder) {
  const ModelFolder to{.folder = folder, .source = run.setup.source, .dtype = run.setup.saved_dtype};
  if (run.setup.model->options().lora)
    save_adapter(run.ctx, *run.setup.model, to);
  else
    save_model(run.ctx, *run.setup.model, to);
  save_text_folder(run.text, folder);
}

fs::path save_checkpoint(const TrainingObjects& run, const fs::path& output) {
  const fs::path final = output / fmt::format("checkpoint-{}", run.state.step);
  const fs::path temporary = final.string() + ".tmp";
  std::error_code ignored;
  try {
    fs::remove_all(temporary);
    fs::create_directories(temporary);
    write_parts(run, temporary);
    if (fs::exists(final)) remove_folder(final);
    rename_synced(temporary, final);
  } catch (const fs::filesystem_error& e) {
    fs::remove_all(temporary, ignored);
    fail(ErrorKind::disk, {.cause = e.code().message(),
                           .place = e.path1().string(),
                           .remedy = "the last whole checkpoint is still there"});
  } catch (const Error&) {  // a full disk gets back what could not be finished
    fs::remove_all(temporary, ignored);
    throw;
  }
  return final;
}

std::vector<fs::path> find_checkpoints(const fs::path& output) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(output, missing))
    if (const auto step = step_of_checkpoint(entry.path()); step >= 0 && fs::is_regular_file(entry.path() / kManifest))
      found.emplace_back(step, entry.path());
  std::sort(found.begin(), found.end());
  std::vector<fs::path> paths;
  for (auto& f : found) paths.push_back(std::move(f.second));
  return paths;
}

std::optional<std::string> saved_template_date(const std::vector<fs::path>& checkpoints) {
  for (const fs::path& checkpoint : checkpoints) {
    try {
      const Json state = read_json(checkpoint / kState);
      const Json identity = state.is_object() ? state.value("identity", Json()) : Json();
      const auto date = identity.find(kTemplateDate);
      if (date == identity.end() || !date->is_string()) return {};
      return date->get<std::string>();
    } catch (const Error& e) {  // load_first_whole tells what is wrong with it
      if (e.kind() != ErrorKind::input) throw;
    }
  }
  return {};
}

void load_checkpoint(TrainingObjects& run, const fs::path& checkpoint) {
  const fs::path file = checkpoint / kState;
  if (!fs::exists(file))
    fail(ErrorKind::input,
         {.cause = "not a checkpoint of qtrain", .place = checkpoint.string(), .remedy = "name a checkpoint-N folder"});
  check_manifest(checkpoint, ManifestCheck::hashes);
  const Json json = read_json(file);
  if (json.value("format_version", 0) != 1)
    fail(ErrorKind::input, {.cause = "a checkpoint of another format version", .place = file.string()});
  if (!json.value("resumable", false))
    fail(ErrorKind::usage, {.cause = "the checkpoint was saved with save_only_model",
                            .place = checkpoint.string(),
                            .remedy = "start over with --resume never"});
  require_same_run(json.value("identity", Json::object()), run.identity, checkpoint.string());
  run.state = RunState::from_json(json, file.string());
  run.state.log_history = read_json(checkpoint / "trainer_state.json").value("log_history", Json::array());
  run.optimizer.set_updates(json.value("updates", run.state.step));
  load_parameters(run.ctx, run.optimizer.state(), checkpoint / kOptimizer);
  Transformer& model = *run.setup.model;
  if (model.options().lora)
    load_adapter(run.ctx, model, checkpoint / "adapter_model.safetensors");
  else
    load_parameters(run.ctx, model.weights(), has_masters(run) ? checkpoint / kMasters : checkpoint);
  model.fill_operand_copies(run.ctx);
}

std::optional<fs::path> load_first_whole(TrainingObjects& run, const std::vector<fs::path>& checkpoints, Log& log) {
  std::optional<Error> first;
  for (const fs::path& checkpoint : checkpoints) {
    try {
      load_checkpoint(run, checkpoint);
      return checkpoint;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::input || checkpoints.size() == 1) throw;
      log.warn("{} is damaged and left alone: {}", checkpoint.string(), e.what());
      if (!first) first = e;
    }
  }
  if (first) throw Error(*first);
  return {};
}

void rotate_checkpoints(const fs::path& output, const Rotation& rotation) {
  std::vector<fs::path> all = find_checkpoints(output);
  std::erase_if(all, [](const fs::path& checkpoint) { return !is_whole(checkpoint); });
  const auto limit = static_cast<std::size_t>(std::max<std::int64_t>(rotation.limit, 1));
  std::size_t excess = all.size() > limit ? all.size() - limit : 0;
  for (const fs::path& checkpoint : all) {
    if (excess == 0) break;
    if (std::find(rotation.keep.begin(), rotation.keep.end(), checkpoint.filename()) != rotation.keep.end()) continue;
    remove_folder(checkpoint);
    --excess;
  }
}

void remove_leftovers(const fs::path& output) {
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(output)) {
    const fs::path name = entry.path().filename(), ending = name.extension();
    const bool folder = step_of_checkpoint(name.stem()) >= 0 && (ending == ".tmp" || ending == ".removed");
    if (folder || is_pending_file(name)) leftovers.push_back(entry.path());
  }
  for (const fs::path& leftover : leftovers) fs::remove_all(leftover);
}

std::int64_t set_aside_checkpoints(const fs::path& output) {
  const std::vector<fs::path> all = find_checkpoints(output);
  for (const fs::path& checkpoint : all) {
    const fs::path aside = checkpoint.string() + ".superseded";
    fs::remove_all(aside);
    fs::rename(checkpoint, aside);
  }
  return static_cast<std::int64_t>(all.size());
}

}  // namespace qtrain
