#include "app/reproduction/verification.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <random>

#include "app/reproduction/own_process.h"
#include "core/file.h"
#include "core/plural.h"
#include "core/sha256.h"
#include "core/stop.h"
#include "core/version.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_folders.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/run_identity.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

/// A folder whose files have the hashes of its manifest.
struct SealedState {
  std::int64_t step = 0;
  fs::path folder;
};

std::string words_of(const ErrorText& text) {
  return text.place.empty() ? text.cause : fmt::format("{}: {}", text.place, text.cause);
}
std::string name_of(const RecordedRun& run, const fs::path& folder) {
  return folder == run.output ? "the result" : folder.filename().string();
}

// The checkpoints and the result that are what was saved; findings about all.
std::vector<SealedState> sealed_states(const RecordedRun& run, Verification& v) {
  std::vector<fs::path> folders = find_checkpoints(run.output);
  if (manifest_step(run.output)) folders.push_back(run.output);
  std::vector<SealedState> states;
  for (const fs::path& folder : folders) {
    const std::string about = "files of " + name_of(run, folder);
    try {
      const Beside beside = folder == run.output ? Beside::anything : Beside::notes;
      states.push_back({check_manifest(folder, ManifestCheck::hashes, beside), folder});
      v.add(about);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::input) throw;
      v.add(about, words_of(e.text()));
    }
    throw_if_stopped();
  }
  for (const fs::path& folder : unsealed_checkpoints(run.output))
    v.add("files of " + folder.filename().string(), "it has no manifest");
  if (folders.empty()) v.add("the result", "there is neither a checkpoint nor a result with a manifest");
  return states;
}

// Of the run whose result lies there; one that has gone on since has a config of its own.
void check_config(const RecordedRun& run, const std::vector<SealedState>& states, Verification& v) {
  const auto result = std::ranges::find(states, run.output, &SealedState::folder);
  if (result == states.end() || !fs::exists(run.output / kTrainResults)) return;
  if (std::ranges::any_of(states, [&](const SealedState& s) { return s.step > result->step; })) return;
  const Json digest = read_json(run.output / kTrainResults).value(kConfigDigest, Json());
  if (!digest.is_string()) return;  // of an earlier version
  const bool same = digest == sha256_of_file(run.output / kResolvedConfig);
  v.add(kResolvedConfig, same ? "" : "it is not the config of the result: it was changed afterwards");
}

void check_inputs(const RecordedRun& run, Verification& v) {
  const auto changed = changed_files(run);
  for (const auto& [name, why] : changed) v.add(name, why);
  if (changed.empty()) v.add(counted(std::ssize(run.files), "file") + " of model and tokenizer");
}

std::optional<Json> identity_of(const fs::path& folder) {
  const fs::path file = folder / "training_state.json";
  if (!fs::exists(file)) return {};
  const Json state = read_json(file);
  const Json identity = state.value("identity", Json::object());
  require_identity(identity, file.string());
  return identity;
}

// All of one run, whatever was changed on purpose when it went on.
void check_identities(const std::vector<SealedState>& states, Verification& v) {
  std::optional<Json> first;
  std::string name;
  for (const SealedState& s : states) {
    const std::optional<Json> identity = identity_of(s.folder);
    if (!identity) continue;
    if (!first) first = identity, name = s.folder.filename();
    if (const RunChanges changes = run_changes(*first, *identity); !changes.refused.empty())
      v.add(s.folder.filename(),
            fmt::format("its config is not that of {}: {}", name, fmt::join(changes.refused, "; ")));
  }
}

/// A folder that goes with this.
class ScratchFolder {
 public:
  explicit ScratchFolder(const fs::path& below) : path_(below / "qtrain-verify-XXXXXX") {
    std::string name = path_.string();
    if (::mkdtemp(name.data()) == nullptr)
      fail(ErrorKind::disk, {.cause = std::generic_category().message(errno),
                             .place = below.string(),
                             .remedy = "name a folder that can be written to with --scratch"});
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string last_lines(const std::string& said) {
  constexpr std::size_t kMost = 600;
  const std::size_t end = said.find_last_not_of(" \n");
  if (end == std::string::npos) return "it said nothing";
  const std::string text = said.substr(0, end + 1);
  return text.size() <= kMost ? text : "..." + text.substr(text.size() - kMost);
}

/// The logged values that do not depend on time, of the steps after `from` up to `to`.
Json logged_values(const fs::path& folder, const RedoneSteps& steps) {
  constexpr std::array kKeys{"step", "loss", "grad_norm", "learning_rate", "num_tokens", "eval_loss"};
  Json rows = Json::array();
  const Json state = read_json(folder / "trainer_state.json");
  for (const Json& row : state.at("log_history")) {
    const std::int64_t step = row.at("step").get<std::int64_t>();
    if (step <= steps.from || step > steps.to || row.contains("train_runtime")) continue;
    Json kept = Json::object();
    for (const char* key : kKeys)
      if (row.contains(key)) kept[key] = row[key];
    rows.push_back(std::move(kept));
  }
  return rows;
}

// What of the sealed state is not what came of doing its steps again; empty: nothing.
std::vector<std::string> differences(const SealedState& sealed, const fs::path& again, const RedoneSteps& steps) {
  std::vector<std::string> found;
  if (const auto before = identity_of(sealed.folder), now = identity_of(again); before && now) {
    RunChanges changes = run_changes(*before, *now);
    found = std::move(changes.refused);
    found.insert(found.end(), changes.told.begin(), changes.told.end());
  }
  for (const std::string& name : sealed_files(sealed.folder)) {
    if (!name.ends_with(".safetensors")) continue;
    if (!fs::exists(again / name))
      found.push_back(name + " was not written");
    else if (sha256_of_file(sealed.folder / name) != sha256_of_file(again / name))
      found.push_back(name + " has other contents");
  }
  const Json before = logged_values(sealed.folder, steps), now = logged_values(again, steps);
  for (std::size_t i = 0; i < std::max(before.size(), now.size()) && before != now; ++i)
    if (i >= before.size() || i >= now.size() || before[i] != now[i]) {
      found.push_back(fmt::format("logged was {}, and is {} now", i < before.size() ? before[i].dump() : "nothing",
                                  i < now.size() ? now[i].dump() : "nothing"));
      break;
    }
  return found;
}

/// From a checkpoint, or the start where there is none, to the checkpoint and the result of a later step.
struct Stretch {
  fs::path from;
  RedoneSteps steps;
  std::vector<SealedState> ends;
};

std::vector<Stretch> stretches_between(std::vector<SealedState> states) {
  std::ranges::stable_sort(states, {}, &SealedState::step);  // checkpoints came before the result
  std::vector<Stretch> stretches;
  for (const SealedState& s : states) {
    if (!stretches.empty() && stretches.back().steps.to == s.step) {
      stretches.back().ends.push_back(s);
      continue;
    }
    Stretch next{.from = {}, .steps = {.from = 0, .to = s.step}, .ends = {s}};
    if (!stretches.empty()) {
      next.from = stretches.back().ends.front().folder;
      next.steps.from = stretches.back().steps.to;
    }
    stretches.push_back(std::move(next));
  }
  return stretches;
}

void redo(const RecordedRun& run, const Stretch& stretch, const fs::path& scratch, Verification& v) {
  const RedoneSteps& steps = stretch.steps;
  const std::string about = fmt::format("steps {} to {}", steps.from + 1, steps.to);
  const fs::path output = scratch / fmt::format("{}-{}", steps.from, steps.to), file = output.string() + ".json";
  const Json quiet{{"report_to", {"none"}}, {"prometheus_port", nullptr}, {"profile", false}};
  write_file(file, dump_json(recorded_document(run, output, quiet), 2) + "\n");
  require_same_values(run, load_config(file), quiet);
  const std::string resume = stretch.from.empty() ? "never" : stretch.from.string();
  const OwnProcessEnd end =
      run_own_process({"train", file.string(), "--resume", resume, "--stop_after", std::to_string(steps.to), "--quiet"},
                      OwnProcessOutput::kept);
  throw_if_stopped();
  if (end.exit_code != 0 && end.exit_code != static_cast<int>(ErrorKind::stopped))
    return v.add(about, fmt::format("cannot be done again (exit code {}): {}", end.exit_code, last_lines(end.said)));
  for (const SealedState& sealed : stretch.ends) {
    const fs::path again = sealed.folder == run.output ? output : output / sealed.folder.filename();
    const std::string name = about + ", " + name_of(run, sealed.folder);
    if (!manifest_step(again))
      v.add(name, "done again they do not lead there");
    else
      v.add(name, fmt::format("{}", fmt::join(differences(sealed, again, steps), "; ")));
  }
  v.redone.push_back(steps);
  std::error_code ignored;
  fs::remove_all(output, ignored);
}

void redo_some(const RecordedRun& run, const std::vector<SealedState>& states, const VerificationOptions& options,
               Log& log, Verification& v) {
  std::vector<Stretch> stretches = stretches_between(states);
  std::shuffle(stretches.begin(), stretches.end(), std::mt19937_64(std::random_device{}()));
  const ScratchFolder scratch(options.scratch);
  fs::current_path(run.folder);  // that names in the config are about
  std::int64_t left = options.steps;
  for (const Stretch& s : stretches) {
    if (left <= 0) break;
    log.info("doing steps {} to {} again", s.steps.from + 1, s.steps.to);
    redo(run, s, scratch.path(), v);
    left -= s.steps.to - s.steps.from;
  }
}

}  // namespace

bool Verification::holds() const {
  return std::ranges::all_of(findings, [](const Finding& f) { return f.problem.empty(); });
}

Verification verify_run(const fs::path& output, const VerificationOptions& options, Log& log) {
  const RecordedRun run = read_recorded_run(output);
  Verification v;
  const std::vector<SealedState> states = sealed_states(run, v);
  check_config(run, states, v);
  check_inputs(run, v);
  check_identities(states, v);
  // With other inputs all would differ, for a reason that is known.
  if (v.holds() && options.steps > 0) redo_some(run, states, options, log, v);
  return v;
}

Json in_toto_statement(const RecordedRun& run, const Verification& verification) {
  Json subjects = Json::array(), inputs = Json::array(), redone = Json::array();
  for (const std::string& name : sealed_files(run.output))
    subjects.push_back({{"name", name}, {"digest", {{"sha256", sha256_of_file(run.output / name)}}}});
  for (const auto& [name, hash] : run.files)
    inputs.push_back({{"name", name}, {"digest", {{"sha256", sha256_of_file(run.folder / name)}}}});
  for (const RedoneSteps& s : verification.redone) redone.push_back({{"first", s.from + 1}, {"last", s.to}});
  Json parameters = Json::object();
  for (const auto& [key, value] : run.values.items()) parameters[key] = value["value"];
  const Json program{{"name", "qtrain " + run.version}, {"digest", {{"sha256", sha256_of_file("/proc/self/exe")}}}};
  return {{"_type", "https://in-toto.io/Statement/v1"},
          {"subject", std::move(subjects)},
          {"predicateType", "https://slsa.dev/provenance/v1"},
          {"predicate",
           {{"buildDefinition",
             {{"buildType", "urn:qtrain:training:1"},
              {"externalParameters", std::move(parameters)},
              {"internalParameters", {{"device", run.device}, {"rows", run.rows}}},
              {"resolvedDependencies", std::move(inputs)}}},
            {"runDetails",
             {{"builder", {{"id", "urn:qtrain:" + run.version}, {"builderDependencies", Json::array({program})}}},
              {"metadata",
               {{"verifiedWith", "qtrain " + std::string(kVersion)}, {"stepsDoneAgain", std::move(redone)}}}}}}}};
}

}  // namespace qtrain
