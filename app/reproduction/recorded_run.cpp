#include "app/reproduction/recorded_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "config/document.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "core/parallel.h"
#include "core/version.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_folders.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/run_identity.h"
#include "train/setup/provenance.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

using IsOfType = bool (Json::*)() const noexcept;

[[noreturn]] void fail_of_type(std::string_view name, const fs::path& file) {
  fail(ErrorKind::input, {.cause = fmt::format("\"{}\" is missing or has the wrong type", name),
                          .place = file.string(),
                          .remedy = "name the output directory of a run that this program made"});
}

const Json& member(const Json& object, const char* name, IsOfType is, const fs::path& file) {
  const auto found = object.find(name);
  if (found == object.end() || !((*found).*is)()) fail_of_type(name, file);
  return *found;
}

Json value_of(const RecordedRun& r, const char* key) {
  const auto entry = r.values.find(key);
  return entry == r.values.end() ? Json() : (*entry)["value"];
}

std::int64_t count_of(const RecordedRun& r, const char* key) {
  const Json value = value_of(r, key);
  return value.is_number_integer() ? std::max<std::int64_t>(value.get<std::int64_t>(), 1) : 1;
}

// The recorded number of ranks; if there is none, it follows from nproc and nnodes.
int ranks_of(const RecordedRun& r) {
  const Json recorded = r.run.value("ranks", Json());
  const std::int64_t ranks =
      recorded.is_number_integer() ? recorded.get<std::int64_t>() : count_of(r, "nproc") * count_of(r, "nnodes");
  constexpr std::int64_t kMaxRanks = 1 << 20;
  return static_cast<int>(std::clamp<std::int64_t>(ranks, 1, kMaxRanks));
}

// Nothing confirms what the file says about the program, but a statement repeats it, so at least its form is checked.
void check_program(const RecordedRun& r, const fs::path& file) {
  constexpr std::size_t kMaxVersion = 64, kHashDigits = 64;
  const auto may_be_in_version = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' ||
           c == '+';
  };
  const bool is_version =
      !r.version.empty() && r.version.size() <= kMaxVersion && std::ranges::all_of(r.version, may_be_in_version);
  if (!is_version) fail(ErrorKind::input, {.cause = "\"version\" is not a valid version", .place = file.string()});
  const auto hash = r.run.find("program_sha256");
  if (hash == r.run.end()) return;
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  const bool is_hash = hash->is_string() && hash->get_ref<const std::string&>().size() == kHashDigits &&
                       std::ranges::all_of(hash->get_ref<const std::string&>(), is_digit);
  if (!is_hash) fail(ErrorKind::input, {.cause = "\"program_sha256\" is not a SHA-256", .place = file.string()});
}

void check_values(const RecordedRun& r, const fs::path& file) {
  if (r.values.size() > kMaxConfigValues)
    fail(ErrorKind::input, {.cause = "\"values\" has more entries than a config can have", .place = file.string()});
  for (const auto& [key, value] : r.values.items()) {
    if (!value.is_object()) fail_of_type(key, file);
    member(value, "origin", &Json::is_string, file);
    if (!value.contains("value"))
      fail(ErrorKind::input, {.cause = fmt::format("\"{}\" has no value", key), .place = file.string()});
  }
}

Relocation::Move move_of(const std::string& text, const fs::path& folder) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == text.size())
    fail(ErrorKind::usage, {.cause = fmt::format("\"{}\" is not OLD=NEW", text), .place = "--moved"});
  const fs::path now = real_path(text.substr(equals + 1));
  if (!path_exists(now)) fail(ErrorKind::usage, {.cause = "does not exist", .place = "--moved " + now.string()});
  const fs::path was = (folder / text.substr(0, equals)).lexically_normal();
  return {.was = was.has_filename() ? was : was.parent_path(), .is = now};
}

// The folder of the run and the files in it may have been moved together with the output directory, or elsewhere.
void find_places(RecordedRun& r, const NamedMoves& moves) {
  const Json output = value_of(r, "output_dir");
  if (output.is_string()) r.places = Relocation((r.folder / output.get<std::string>()).lexically_normal(), r.output);
  for (const std::string& move : moves) r.places.add(move_of(move, r.folder));
  std::error_code ignored;
  if (!fs::is_directory(r.folder, ignored)) r.folder = r.places.now(r.folder);
}

// A group size of -1 means one group per machine. A repeated run has all ranks on one machine, so it must name the
// size.
bool is_size_per_machine(const std::string& key, const Json& recorded) {
  return key == "zero_group_size" && recorded == -1;
}

}  // namespace

bool is_machine_key(const std::string& key) {
  static const std::set<std::string> kKeys{"output_dir",  "threads",     "nproc",        "nnodes", "node_rank",
                                           "master_addr", "master_port", "max_restarts", "device"};
  return kKeys.contains(key);
}

fs::path RecordedRun::file_now(const std::string& name) const {
  return places.now(folder / name);
}

std::string RecordedRun::noted(const char* name) const {
  const Json value = run.value(name, Json());
  return value.is_string() ? value.get<std::string>() : "";
}

RecordedRun read_recorded_run(const fs::path& output, const NamedMoves& moves) {
  const fs::path file = output / kResolvedConfig;
  if (!path_exists(file))
    fail(ErrorKind::input, {.cause = "has no resolved_config.json, which records what ran there",
                            .place = output.string(),
                            .remedy = "name the output directory of a run"});
  const Json json = read_json(file);
  if (!json.is_object()) fail(ErrorKind::input, {.cause = "is not a JSON object", .place = file.string()});
  const Json& run = member(json, "run", &Json::is_object, file);
  RecordedRun r{.output = full_path(output),
                .version = member(run, "version", &Json::is_string, file),
                .device = member(run, "device", &Json::is_string, file),
                .folder = std::string(member(run, "folder", &Json::is_string, file)),
                .dialect = member(json, "dialect", &Json::is_string, file),
                .rows = member(run, "training_data", &Json::is_string, file),
                .values = member(json, "values", &Json::is_object, file),
                .run = run};
  const Json& files = member(run, "files", &Json::is_object, file);
  for (const auto& [name, hash] : files.items()) {
    if (!hash.is_string()) fail_of_type(name, file);
    r.files[name] = hash;
  }
  check_program(r, file);
  check_values(r, file);
  r.ranks = ranks_of(r);
  find_places(r, moves);
  return r;
}

// Leaves out defaults: the dialect supplies the same ones in the same version, which require_same_values checks.
RunDocument recorded_document(const RecordedRun& run, const DocumentChanges& changes) {
  RunDocument d{.json = Json::object(), .renames = {}, .changed = changes.keys};
  for (const auto& [key, value] : run.values.items())
    if (!value["origin"].get<std::string>().starts_with("default")) d.json[key] = value["value"];
  d.json.update(changes.keys);
  if (value_of(run, "push_to_hub") == true) d.json["push_to_hub"] = d.changed["push_to_hub"] = false;
  // If the config sets no date, templates get the day of the run.
  if (const std::string date = run.noted(kTemplateDate); !date.empty() && value_of(run, kTemplateDate).is_null())
    d.json[kTemplateDate] = d.changed[kTemplateDate] = date;
  d.renames = rename_moved(d.json, run.places, run.folder);
  for (const char* key : {"nnodes", "node_rank", "master_addr", "master_port"}) d.json.erase(key);
  // Results do not depend on the number of threads, and more threads than processors would only slow the run down.
  if (const Json threads = value_of(run, "threads"); threads.is_number() && threads.get<double>() > usable_processors())
    d.json.erase("threads");
  // All ranks run on this machine. What was one group per machine becomes groups of the same size.
  d.json["nproc"] = changes.ranks;
  if (d.json.value("zero_group_size", Json()) == -1 && count_of(run, "nnodes") > 1)
    d.json["zero_group_size"] = count_of(run, "nproc");
  if (const std::string kind = run.noted("device_kind"); !kind.empty()) d.json["device"] = kind;
  d.json["dialect"] = run.dialect;
  d.json["output_dir"] = full_path(changes.output).string();
  return d;
}

void require_same_values(const RecordedRun& run, const ResolvedConfig& config, const RunDocument& document) {
  constexpr std::size_t kMaxListed = 8;
  const Json now = resolved_json(config)["values"];
  std::vector<std::string> others;
  for (const auto& [key, recorded] : run.values.items()) {
    if (run.version == kVersion && recorded.size() > 2)
      others.push_back(fmt::format("{} has more than a value and an origin", key));
    if (is_machine_key(key) || document.changed.contains(key) || is_size_per_machine(key, recorded["value"])) continue;
    const std::string was = dump_json(recorded["value"]);
    if (!now.contains(key))
      others.push_back(fmt::format("{} was {}, but there is no such key", key, was));
    else if (const Json value = with_former_names(now[key]["value"], document.renames); dump_json(value) != was)
      others.push_back(fmt::format("{} was {}, but is now {}", key, was, dump_json(value)));
  }
  if (run.version == kVersion)  // another version may have had fewer keys
    for (const auto& [key, value] : now.items())
      if (!run.values.contains(key)) others.push_back(fmt::format("{} is not recorded", key));
  if (others.empty()) return;
  if (others.size() > kMaxListed) others[kMaxListed] = fmt::format("{} more", others.size() - kMaxListed);
  others.resize(std::min(others.size(), kMaxListed + 1));
  fail(ErrorKind::input,
       {.cause = fmt::format("describes a different run than the recorded one: {}", fmt::join(others, "; ")),
        .place = (run.output / kResolvedConfig).string(),
        .remedy = fmt::format(
            "the run was made with qtrain {}: use that version, or restore the file as it was written", run.version)});
}

void require_few_ranks(int ranks) {
  constexpr int kAlwaysAllowed = 64, kPerProcessor = 16;
  const int most = std::max(kAlwaysAllowed, kPerProcessor * usable_processors());
  if (ranks > most)
    fail(ErrorKind::input,
         {.cause = fmt::format("{} ranks are recorded, but this machine can run at most {}", ranks, most),
          .place = kResolvedConfig,
          .remedy = "use a machine with more processors"});
}

std::map<std::string, std::string> changed_files(const RecordedRun& run) {
  std::map<std::string, std::string> changed;
  const Json recorded = run.run.value("files_sha256", Json::object());
  std::map<std::string, Json> sha256;  // Json objects are searched linearly, a map is not
  if (recorded.is_object())
    for (const auto& [name, hash] : recorded.items()) sha256[name] = hash;
  for (const auto& [name, hash] : run.files) {
    try {
      const FileHashes now = hashes_of(run.file_now(name));
      const auto sealed = sha256.find(name);
      if (now.content != hash || (sealed != sha256.end() && sealed->second != now.sha256))
        changed[name] = "its contents have changed since the run";
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::input) throw;
      std::error_code unknown;
      const bool gone = !fs::exists(run.file_now(name), unknown) && !unknown;
      changed[name] = gone ? fmt::format("{}; {}", e.text().cause, kHintMoved) : e.text().cause;
    }
  }
  return changed;
}

void enter_folder(const RecordedRun& run) {
  std::error_code gone;
  fs::current_path(run.folder, gone);
  if (!gone) return;
  fail(ErrorKind::input,
       {.cause = "cannot enter the folder where the run was started, which relative names in its config refer to: " +
                 gone.message(),
        .place = run.folder.string(),
        .remedy = fmt::format("restore it, or move it together with the output directory; {}", kHintMoved)});
}

}  // namespace qtrain
