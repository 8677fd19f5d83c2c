#include "app/reproduction/recorded_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "core/file.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/provenance.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

const Json& member(const Json& object, const char* name, bool (Json::*is)() const noexcept, const fs::path& file) {
  const auto found = object.find(name);
  if (found == object.end() || !((*found).*is)())
    fail(ErrorKind::input, {.cause = fmt::format("\"{}\" is missing or of another type", name),
                            .place = file.string(),
                            .remedy = "name the output directory of a run that this program made"});
  return *found;
}

/// What the machine decides, and where the result lies.
bool is_of_place(const std::string& key) {
  static const std::set<std::string> kKeys{"output_dir", "threads",     "nproc",      "nnodes",
                                           "node_rank",  "master_addr", "master_port"};
  return kKeys.contains(key);
}

}  // namespace

RecordedRun read_recorded_run(const fs::path& output) {
  const fs::path file = output / kResolvedConfig;
  if (!fs::exists(file))
    fail(ErrorKind::input, {.cause = "has no resolved_config.json, so nothing says what ran there",
                            .place = output.string(),
                            .remedy = "name the output directory of a run"});
  const Json json = read_json(file);
  if (!json.is_object()) fail(ErrorKind::input, {.cause = "is no JSON object", .place = file.string()});
  const Json& run = member(json, "run", &Json::is_object, file);
  RecordedRun r{.output = full_path(output),
                .version = member(run, "version", &Json::is_string, file),
                .device = member(run, "device", &Json::is_string, file),
                .folder = std::string(member(run, "folder", &Json::is_string, file)),
                .dialect = member(json, "dialect", &Json::is_string, file),
                .rows = member(run, "training_data", &Json::is_string, file),
                .values = member(json, "values", &Json::is_object, file)};
  const Json& files = member(run, "files", &Json::is_object, file);
  for (const auto& [name, hash] : files.items()) r.files[name] = member(files, name.c_str(), &Json::is_string, file);
  for (const auto& [key, value] : r.values.items()) {
    member(r.values, key.c_str(), &Json::is_object, file);
    member(value, "origin", &Json::is_string, file);
    if (!value.contains("value"))
      fail(ErrorKind::input, {.cause = fmt::format("\"{}\" has no value", key), .place = file.string()});
  }
  return r;
}

// Defaults are left out: those of the dialect are the same in the same version, which require_same_values sees to.
Json recorded_document(const RecordedRun& run, const fs::path& output, const Json& changes) {
  Json document = Json::object();
  for (const auto& [key, value] : run.values.items())
    if (!value["origin"].get<std::string>().starts_with("default")) document[key] = value["value"];
  if (const auto ranks = run.values.find("nproc"); ranks != run.values.end() && (*ranks)["value"] != 1)
    document["nproc"] = (*ranks)["value"];
  document["dialect"] = run.dialect;
  document["output_dir"] = full_path(output).string();
  document.update(changes);
  return document;
}

void require_same_values(const RecordedRun& run, const ResolvedConfig& config, const Json& changes) {
  const Json now = resolved_json(config)["values"];
  std::vector<std::string> others;
  for (const auto& [key, recorded] : run.values.items()) {
    if (is_of_place(key) || changes.contains(key)) continue;
    const Json value = now.contains(key) ? now[key]["value"] : Json();
    if (value != recorded["value"])
      others.push_back(fmt::format("{} was {}, and is {} now", key, recorded["value"].dump(), value.dump()));
  }
  if (others.empty()) return;
  fail(ErrorKind::input,
       {.cause = fmt::format("asks for another run than it was: {}", fmt::join(others, "; ")),
        .place = (run.output / kResolvedConfig).string(),
        .remedy = fmt::format("the run was made with qtrain {}; use that version, or the file as that wrote it",
                              run.version)});
}

std::map<std::string, std::string> changed_files(const RecordedRun& run) {
  std::map<std::string, std::string> changed;
  for (const auto& [name, hash] : run.files) {
    const fs::path file = run.folder / name;  // unless the name is a full one
    try {
      if (content_hash(file) != hash) changed[name] = "has other contents than in the run";
    } catch (const Error& e) {
      changed[name] = e.text().cause;
    }
  }
  return changed;
}

}  // namespace qtrain
