#include "train/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <initializer_list>

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

fs::path doomed_name(const fs::path& folder) {
  return folder.string() + ".removed";
}

// A folder goes away under another name first, so that a checkpoint is whole or not there.
void remove_folder(const fs::path& folder) {
  const fs::path doomed = doomed_name(folder);
  fs::remove_all(doomed);
  fs::rename(folder, doomed);
  fs::remove_all(doomed);
}

// Gives a finished folder its final name. One that has this name goes once the new one has it for good.
void replace_folder(const fs::path& from, const fs::path& to) {
  if (!fs::exists(to)) return rename_synced(from, to);
  const fs::path doomed = doomed_name(to);
  fs::remove_all(doomed);
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    rename_synced(from, doomed);
  } else {  // not on every file system; clear_leftovers mends what is interrupted here
    rename_synced(to, doomed);
    rename_synced(from, to);
  }
  std::error_code later;  // by the next run
  fs::remove_all(doomed, later);
}

struct Member {
  const char* key;
  bool (Json::*is)() const noexcept;
};

// An object with these members of these types.
Json read_members(const fs::path& file, std::initializer_list<Member> members) {
  Json object = read_json(file);
  for (const auto& [key, is] : members)
    if (!object.contains(key) || !(object[key].*is)())
      fail(ErrorKind::input,
           {.cause = fmt::format("\"{}\" is missing or of another type", key), .place = file.string()});
  return object;
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

// A full disk gets back what could not be finished.
void write_checkpoint(const TrainingObjects& run, const fs::path& folder) {
  try {
    fs::remove_all(folder);
    fs::create_directories(folder);
    write_parts(run, folder);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    throw;
  }
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

// Gives a whole checkpoint the name back that an interrupted save or removal took from it. False: there is nothing to
// keep.
bool put_back(const fs::path& leftover, Log& log) {
  fs::path checkpoint = leftover;
  checkpoint.replace_extension();
  if (step_of_checkpoint(checkpoint) < 0 || fs::exists(checkpoint) || !is_whole(leftover)) return false;
  std::error_code error;
  fs::rename(leftover, checkpoint, error);
  if (error)
    log.warn("{} is whole but cannot be renamed: {}", leftover.string(), error.message());
  else
    log.info("{} was left by an interrupted run and has its name again", checkpoint.string());
  return true;
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
  try {
    write_checkpoint(run, temporary);
    replace_folder(temporary, final);
  } catch (const fs::filesystem_error& e) {
    fail(ErrorKind::disk, {.cause = e.code().message(),
                           .place = e.path1().string(),
                           .remedy = "the last whole checkpoint is still there"});
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
      check_file(checkpoint, kState);
      const Json identity = read_members(checkpoint / kState, {{"identity", &Json::is_object}})["identity"];
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
  const Json json = read_members(file, {{"format_version", &Json::is_number},
                                        {"resumable", &Json::is_boolean},
                                        {"updates", &Json::is_number_unsigned},
                                        {"identity", &Json::is_object}});
  if (json["format_version"] != 1)
    fail(ErrorKind::input, {.cause = "a checkpoint of another format version", .place = file.string()});
  if (json["resumable"] == false)
    fail(ErrorKind::usage, {.cause = "the checkpoint was saved with save_only_model",
                            .place = checkpoint.string(),
                            .remedy = "start over with --resume never"});
  require_same_run(json["identity"], run.identity, checkpoint.string());
  run.state = RunState::from_json(json, file.string());
  run.state.log_history =
      read_members(checkpoint / "trainer_state.json", {{"log_history", &Json::is_array}})["log_history"];
  run.optimizer.set_updates(json["updates"]);
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

void clear_leftovers(const fs::path& output, const fs::path& named, Log& log) {
  std::vector<fs::path> leftovers;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(output, error)) {
    const fs::path name = entry.path().filename(), ending = name.extension();
    const bool folder = step_of_checkpoint(name.stem()) >= 0 && (ending == ".tmp" || ending == ".removed");
    if (folder || is_pending_file(name)) leftovers.push_back(entry.path());
  }
  std::sort(leftovers.rbegin(), leftovers.rend());  // ".tmp" first: newer than ".removed"
  for (const fs::path& leftover : leftovers) {
    if (fs::equivalent(leftover, named, error) || put_back(leftover, log)) continue;
    fs::remove_all(leftover, error);
    if (error) log.warn("{} cannot be removed: {}", leftover.string(), error.message());
  }
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
