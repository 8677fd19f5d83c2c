#include "train/checkpoint/foreign_results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/formats/gguf.h"
#include "core/formats/json.h"
#include "core/formats/weight_files.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_folders.h"
#include "train/checkpoint/manifest.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

// Returns what `read` does, or "" if the file is damaged or of another kind.
template <class Read>
std::string text_if_any(const Read& read) {
  try {
    return read();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input) throw;
  } catch (const Json::exception&) {  // not a string
  }
  return {};
}

constexpr const char* kTemplates = "additional_chat_templates";
constexpr std::string_view kEndings[] = {".safetensors", ".bin", ".pt", ".pth", ".gguf"};  // of weight files

// Whether a run may replace, rename or remove a folder of this name in its output directory.
bool is_folder_of_run(const fs::path& name) {
  return name == kTemplates || is_leftover(name) || step_of_checkpoint(name) >= 0;
}

bool is_filled_folder(const fs::path& folder) {
  std::error_code unknown;
  return fs::is_directory(folder, unknown) && !fs::is_empty(folder, unknown);
}

// The name under which a run writes to something that is there: on a file system that ignores case, "config.json" for
// "Config.json".
fs::path name_for_run(const fs::path& there) {
  std::string name = there.filename().string();
  std::ranges::transform(name, name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  std::error_code absent;
  return fs::equivalent(there.parent_path() / name, there, absent) && !absent ? fs::path(name) : there.filename();
}

// Whether something would be lost if the file were replaced. A killed run may leave empty files, and a run does not
// replace folders.
bool has_contents(const fs::path& file) {
  std::error_code unknown;
  const fs::file_status there = fs::status(file, unknown);
  if (!fs::exists(there) || fs::is_directory(there)) return false;
  return !fs::is_regular_file(there) || fs::file_size(file, unknown) > 0;
}

// Whether a run would replace or remove something that is in its output directory.
bool is_lost_to_run(const fs::path& there) {
  const fs::path name = name_for_run(there);
  if (is_filled_folder(there)) return is_leftover(name) || name == kTemplates;
  return has_contents(there) && (is_leftover(name) || is_file_of_run(name));
}

// Names of weight files of any program directly inside a folder.
std::vector<std::string> weights_there(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (std::ranges::any_of(kEndings, [&](std::string_view ending) { return name.ends_with(ending); }))
      names.push_back(std::move(name));
  }
  return names;
}

/// Size and time of a file, which change when it is replaced.
Json facts_of(const fs::path& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) return {};
  return {{"size", info.st_size}, {"modified", fmt::format("{}.{:09}", info.st_mtim.tv_sec, info.st_mtim.tv_nsec)}};
}

bool holds_nothing(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (!is_pending_file(it->path().filename())) return false;
  return true;
}

/// Whether the folder contains a checkpoint of a run.
bool has_checkpoint(const fs::path& output) {
  std::error_code error;
  for (fs::directory_iterator it(output, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().starts_with("checkpoint-") && manifest_step(it->path())) return true;
  return false;
}

/// Whether a run has written here, judging by the files that it writes first and last, and by its checkpoints. A
/// checkpoint itself has none of these.
bool is_output_of_run(const fs::path& output) {
  if (manifest_step(output) && path_exists(output / kTrainResults)) return true;
  if (has_checkpoint(output)) return true;
  const std::string text = text_if_any([&] {
    const Json resolved = read_json(output / kResolvedConfig);
    const bool ours = resolved.is_object() && resolved.contains("values") && resolved.contains("run");
    return std::string(ours ? "ours" : "");
  });
  return !text.empty();
}

/// Whether a sealed result contains a file of this name and size. Hashing it would take too long.
bool is_sealed(const fs::path& output, const std::string& name) {
  const Json manifest = read_json(output / kManifest);
  const Json files = manifest.value("files", Json::object());
  std::error_code gone;
  return files.contains(name) && files[name].value("size", Json()) == fs::file_size(output / name, gone);
}

/// When a file was created, moved here or changed; none if it does not exist.
std::optional<std::pair<std::int64_t, std::int64_t>> changed_at(const fs::path& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) return {};
  return std::pair<std::int64_t, std::int64_t>(info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
}

/// Whether a file predates the seal of the result next to it, so that --overwrite was given at the time.
bool lay_there_before(const fs::path& output, const std::string& name) {
  const auto file = changed_at(output / name), manifest = changed_at(output / kManifest);
  return file && manifest && *file < *manifest && !read_json(output / kManifest)["files"].contains(name);
}

bool is_in(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

using FileId = std::pair<dev_t, ino_t>;

/// Hard links to a file have the same id, and so does a folder under every path to which it is mounted.
std::optional<FileId> id_of(const fs::path& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) return {};
  return FileId(info.st_dev, info.st_ino);
}

/// The ids of a file and of the folders that it is in.
std::set<FileId> ids_along(const fs::path& path) {
  std::set<FileId> ids;
  for (fs::path at = path; at.has_relative_path(); at = at.parent_path())
    if (const auto id = id_of(at)) ids.insert(*id);
  return ids;
}

bool has_any(const std::set<FileId>& ids, const std::set<FileId>& wanted) {
  return std::ranges::any_of(ids, [&](const FileId& id) { return wanted.contains(id); });
}

/// A file in its folder: in another folder, a hard link to it is another place.
using PlaceId = std::pair<std::optional<FileId>, std::optional<FileId>>;
PlaceId place_of(const fs::path& real) {
  return {id_of(real.parent_path()), id_of(real)};
}

/// Whether a file of a run is a link to one of another run, as in a copy that consists of links. A folder to which the
/// checkpoints or weights of this run were moved contains no config of a run.
bool leads_to_another_run(const fs::directory_entry& entry) {
  std::error_code broken;
  if (!entry.is_symlink(broken) || !is_file_of_run(entry.path().filename())) return false;
  const fs::path folder = real_path(entry.path()).parent_path();
  return folder != real_path(entry.path().parent_path()) && path_exists(folder / kResolvedConfig) &&
         is_output_of_run(folder);
}

/// The innermost checkpoint that a path leads to or into; empty if there is none. Copies and mounts may have any name.
fs::path checkpoint_around(const fs::path& path) {
  for (fs::path at = path; at.has_relative_path(); at = at.parent_path())
    if (path_exists(at / kTrainingState) && manifest_step(at)) return at;
  return {};
}

/// Whether a folder is mounted here, so that its name says nothing about what it is.
bool is_mount(const fs::path& folder) {
  struct statx info {};
  return ::statx(AT_FDCWD, folder.c_str(), 0, STATX_BASIC_STATS, &info) == 0 &&
         (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

[[noreturn]] void fail_in_checkpoint(const fs::path& place, const fs::path& checkpoint) {
  fail(ErrorKind::usage,
       {.cause = fmt::format("would damage {}, which has to stay as it was saved", checkpoint.filename().string()),
        .place = place.string(),
        .remedy = "choose another location"});
}

}  // namespace

std::string gguf_writer(const fs::path& file) {
  return text_if_any([&] {
    const GgufFile gguf(file);
    return gguf.find(kGgufWrittenBy) ? gguf.text(kGgufWrittenBy) : "";
  });
}

bool is_file_of_run(const std::string& name) {
  constexpr std::array<std::string_view, 20> kNames{
      kManifest,         kResolvedConfig,         kTrainResults,         kTrainerState, kMetrics,
      "messages.jsonl",  "samples.jsonl",         "report.html",         "config.json", "generation_config.json",
      "tokenizer.json",  "tokenizer_config.json", "adapter_config.json", "merges.txt",  "special_tokens_map.json",
      "tokenizer.model", "added_tokens.json",     "chat_template.jinja", "vocab.json",  "chat_template.json"};
  return std::ranges::find(kNames, name) != kNames.end() || name.starts_with("trace-rank-") ||
         name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
}

void mark_result(const fs::path& folder, const std::string& command) {
  Json files = Json::object();
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file()) files[entry.path().filename().string()] = facts_of(entry.path());
  write_file(folder / kResultMark, dump_json({{"written_by", command}, {"files", std::move(files)}}, 2) + "\n");
}

std::string result_writer(const fs::path& folder) {
  return text_if_any([&] {
    const Json mark = read_json(folder / kResultMark);
    if (!mark.is_object()) return std::string();
    const Json files = mark.value("files", Json::object());
    std::vector<std::string> names = weights_there(folder);
    if (names.empty()) names = {"tokenizer.json"};
    const auto is_there = [&](const std::string& name) {
      return files.is_object() && files.contains(name) && files[name] == facts_of(folder / name);
    };
    return std::ranges::all_of(names, is_there) ? mark.value("written_by", "") : "";
  });
}

bool is_free_for(const std::string& command, const fs::path& folder) {
  return holds_nothing(folder) || result_writer(folder) == command;
}

bool has_foreign_weights(const fs::path& output) {
  std::error_code ignored;
  if (!fs::is_directory(output, ignored) || !has_weights(output)) return false;
  if (!is_output_of_run(output) || !result_writer(output).empty()) return true;
  const bool sealed = manifest_step(output).has_value();
  return sealed && std::ranges::any_of(weights_there(output), [&](const std::string& name) {
           return (is_weight_file(name) || name == "adapter_model.safetensors") && !is_sealed(output, name) &&
                  !lay_there_before(output, name);
         });
}

void require_other_runs_stay(const fs::path& output) {
  require_no_folder_of_checkpoint(output);
  std::error_code error;
  for (fs::directory_iterator it(output, error), end; !error && it != end; it.increment(error))
    if (leads_to_another_run(*it))
      fail(ErrorKind::usage, {.cause = "is a link to a file of another run, which would be overwritten",
                              .place = it->path().string(),
                              .remedy = "choose another output_dir, or replace the link with a copy of the file"});
}

void require_no_foreign_results(const fs::path& output) {
  require_other_runs_stay(output);
  const bool is_ours = is_output_of_run(output);
  if (!is_ours && manifest_step(output))
    fail(ErrorKind::usage, {.cause = "output_dir is a checkpoint, which would be overwritten",
                            .place = output.string(),
                            .remedy = "choose another output_dir, or pass --overwrite"});
  if (has_foreign_weights(output))
    fail(ErrorKind::usage,
         {.cause = "output_dir contains weights that were not written by a run and would be overwritten",
          .place = output.string(),
          .remedy = "choose another output_dir, or pass --overwrite"});
  if (is_ours) return;
  std::error_code error;
  for (fs::directory_iterator it(output, error), end; !error && it != end; it.increment(error)) {
    if (!is_lost_to_run(it->path())) continue;
    fail(ErrorKind::usage, {.cause = "was not written by a run and would be overwritten",
                            .place = it->path().string(),
                            .remedy = "choose another output_dir, or pass --overwrite"});
  }
}

void require_inputs_stay(const fs::path& output, const std::vector<fs::path>& inputs) {
  std::error_code unreadable;
  std::set<fs::path> replaced, folders;
  std::set<PlaceId> replaced_places;
  std::set<FileId> folder_ids;
  for (fs::directory_iterator it(output, unreadable), end; !unreadable && it != end; it.increment(unreadable)) {
    const fs::path name = name_for_run(it->path()), real = real_path(it->path());
    if (is_file_of_run(name)) replaced.insert(real), replaced_places.insert(place_of(real));
    if (!is_folder_of_run(name)) continue;
    folders.insert(real);
    if (const auto id = id_of(real)) folder_ids.insert(*id);
  }
  for (const fs::path& input : inputs) {
    if (!fs::exists(input, unreadable)) continue;
    const fs::path real = real_path(input);
    const bool inside = std::ranges::any_of(folders, [&](const fs::path& folder) { return is_in(real, folder); }) ||
                        (!folder_ids.empty() && has_any(ids_along(real), folder_ids));
    if (!inside && !replaced.contains(real) && !replaced_places.contains(place_of(real))) continue;
    fail(ErrorKind::usage,
         {.cause = inside ? "is an input of the run, and is in a folder of output_dir that a run replaces or removes"
                          : "is an input of the run, and would be overwritten by an output of the same name",
          .place = input.string(),
          .remedy = inside ? "choose another output_dir, or move the input" : "choose another output_dir"});
  }
}

void require_outside(const fs::path& output, const std::vector<fs::path>& inputs) {
  const fs::path real = real_path(output);
  const std::set<FileId> ids = ids_along(real);
  const std::optional<FileId> own = id_of(real);
  for (const fs::path& input : inputs) {
    const std::optional<FileId> id = id_of(input);
    if (!id) continue;
    const fs::path place = real_path(input);
    if (!is_in(real, place) && !ids.contains(*id)) continue;
    const bool same = real == place || id == own;
    fail(ErrorKind::usage,
         {.cause = same ? "the output is an input of the command"
                        : fmt::format("the output is inside an input of the command: {}", input.string()),
          .place = output.string(),
          .remedy = "choose another location"});
  }
}

void require_no_file_of_checkpoint(const fs::path& file) {
  const fs::path real = real_path(file), checkpoint = checkpoint_around(real);
  if (checkpoint.empty()) return;
  const std::vector<std::string> sealed = sealed_files(checkpoint);
  const fs::path name = real.lexically_relative(checkpoint);
  const bool is_part =
      name == kManifest || is_read_as_part(name) || std::ranges::find(sealed, name.string()) != sealed.end();
  if (is_part) fail_in_checkpoint(file, checkpoint);
}

void require_no_folder_of_checkpoint(const fs::path& folder) {
  const fs::path real = real_path(folder), checkpoint = checkpoint_around(real);
  // A copy may be replaced as a whole.
  const bool is_copy = checkpoint == real && step_of_checkpoint(name_for_run(real)) < 0 && !is_mount(real);
  if (!checkpoint.empty() && !is_copy) fail_in_checkpoint(folder, checkpoint);
}

void require_no_file_of_run(const fs::path& file, const fs::path& output) {
  require_no_file_of_checkpoint(file);
  const fs::path inside = real_path(file).lexically_relative(real_path(output));
  if (inside.empty() || *inside.begin() == "..") return;
  const fs::path first = *inside.begin();
  const bool is_folder = first != inside;
  if (is_folder ? !is_folder_of_run(first) : !is_file_of_run(first) && first != ".lock" && !is_leftover(first)) return;
  fail(ErrorKind::usage,
       {.cause = "is a file of the run itself", .place = file.string(), .remedy = "choose another name or folder"});
}

}  // namespace qtrain
