#include "app/reproduction/redone_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <random>
#include <string_view>

#include "app/reproduction/logged_rows.h"
#include "app/reproduction/own_process.h"
#include "app/reproduction/redone_state.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "core/os/stop.h"
#include "core/version.h"
#include "report/run_messages.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/run_identity.h"
#include "train/run/train.h"
#include "train/setup/provenance.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

/// A temporary folder, removed by the destructor.
class ScratchFolder {
 public:
  explicit ScratchFolder(const fs::path& below) : path_(below / "qtrain-verify-XXXXXX") {
    std::string name = path_.string();
    if (::mkdtemp(name.data()) == nullptr)
      fail(ErrorKind::disk, {.cause = std::generic_category().message(errno),
                             .place = below.string(),
                             .remedy = "name a writable folder with --scratch"});
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

std::string last_lines(const std::string& output) {
  constexpr std::size_t kMaxBytes = 600;
  const std::size_t end = output.find_last_not_of(" \n");
  if (end == std::string::npos) return "it printed nothing";
  const std::string text = output.substr(0, end + 1);
  return text.size() <= kMaxBytes ? text : "..." + text.substr(text.find_first_of(" \n", text.size() - kMaxBytes));
}

// The error may be about a data file that was moved.
std::string hint_if_moved(const OwnProcessEnd& end) {
  std::error_code unknown;
  const bool gone = end.error && !end.error->text().place.empty() && !fs::exists(end.error->text().place, unknown);
  return gone && !unknown ? fmt::format("; {}", kHintMoved) : "";
}

/// One start of the program, which repeats steps up to `until` with these values of keys.
struct Start {
  std::int64_t until = 0;
  Json keys = Json::object();
  int ranks = 1;
};

bool leads_to_result(const RecordedRun& run, const Stretch& stretch) {
  return std::ranges::any_of(stretch.ends, [&](const SealedState& s) { return s.folder == run.output; });
}

// The starts that repeat a stretch. After those with the values that the user gave, one has the values that are
// recorded for the stretch. If that was to do more steps than the result has, a shorter run has made the result.
std::vector<Start> starts_of(const RecordedRun& run, const Stretch& stretch, const DocumentChanges& changes,
                             const std::map<std::int64_t, Json>& earlier) {
  std::vector<Start> starts;
  for (const auto& [until, values] : earlier) {
    if (until <= stretch.steps.from || until >= stretch.steps.to) continue;
    starts.push_back({.until = until, .keys = changes.keys, .ranks = changes.ranks});
    starts.back().keys.update(values);
  }
  starts.push_back({.until = stretch.steps.to, .keys = changes.keys, .ranks = changes.ranks});
  if (leads_to_result(run, stretch) && std::ranges::any_of(stretch.ends, is_of_longer_run))
    starts.push_back({.until = stretch.steps.to, .ranks = run.ranks});
  return starts;
}

/// The config of the run, with the values that were different when the stretch was trained.
DocumentChanges changes_for(const RecordedRun& run, const Stretch& stretch, const fs::path& scratch) {
  const auto [from, to] = stretch.steps;
  DocumentChanges changes{.output = scratch / fmt::format("{}-{}", from, to), .ranks = run.ranks};
  const auto made = std::ranges::find_if(stretch.ends, [](const SealedState& s) { return s.state.has_value(); });
  if (made != stretch.ends.end()) {
    changes.ranks = ranks_at_checkpoint(run, made->identity());
    changes.keys = keys_at_checkpoint(run, made->identity());
  }
  return changes;
}

// Turns off everything that reaches outside the scratch folder. The token cache is a new one, so that all rows are
// encoded again.
void keep_apart(Json& keys, const fs::path& scratch) {
  keys.update({{"report_to", {"none"}},
               {"prometheus_port", nullptr},
               {"profile", false},
               {"max_restarts", 0},
               {"token_cache_dir", (scratch / "tokens").string()}});
}

// The name of a member that is only in the first of two objects; empty: there is none.
std::string invented_member(const Json& recorded, const Json& now) {
  for (const auto& [name, value] : recorded.items())
    if (!now.contains(name)) return name;
  return "";
}

/// A repeated stretch, of which the last start that recorded its config may have done nothing.
struct Repeated {
  const RunDocument& document;
  bool by_last_start;
};

// Compares what the new start recorded (device, rows, files and their hashes) with what the run recorded.
std::string run_difference(const RecordedRun& run, const Repeated& repeated) {
  constexpr std::array kKeys{"device",
                             "device_kind",
                             "ranks",
                             "seed",
                             "data_seed",
                             "max_steps",
                             kTemplateDate,
                             "training_data",
                             "evaluation_data",
                             "training_data_sha256",
                             "evaluation_data_sha256"};
  constexpr std::array kOfLastStart{"max_steps", "ranks", "evaluation_data", "evaluation_data_sha256"};
  const RunDocument& document = repeated.document;
  const fs::path again = document.json["output_dir"].get<std::string>();
  const Json all_then = read_json(run.output / kResolvedConfig), all_now = read_json(again / kResolvedConfig);
  const Json now = all_now.value("run", Json::object());
  for (const char* key : kKeys) {
    if (!repeated.by_last_start && std::ranges::find(kOfLastStart, std::string_view(key)) != kOfLastStart.end())
      continue;
    if (const std::string was = dump_json(run.run.value(key, Json())), is = dump_json(now.value(key, Json()));
        was != is)
      return fmt::format("{} says that {} is {}, but repeating the steps gives {}", kResolvedConfig, key, was, is);
  }
  for (const char* key : {"files", "files_sha256"}) {
    const std::string difference =
        first_difference(with_former_files(run.run.value(key, Json::object()), {}),
                         with_former_files(now.value(key, Json::object()), document.renames));
    if (!difference.empty()) return fmt::format("{}: run.{}.{}", kResolvedConfig, key, difference);
  }
  if (run.version == kVersion) {  // another version may have recorded more or less
    for (const std::string& name : {invented_member(all_then, all_now), invented_member(run.run, now)})
      if (!name.empty()) return fmt::format("{} says {}, which no run records", kResolvedConfig, name);
    for (const std::string& name : {invented_member(all_now, all_then), invented_member(now, run.run)})
      if (!name.empty()) return fmt::format("{} does not say {}, which every run records", kResolvedConfig, name);
  }
  if (run.noted("program_sha256") == own_program_hash() && run.version != kVersion)
    return fmt::format("{} says that the version is {}, but the program with the recorded hash has version {}",
                       kResolvedConfig, run.version, kVersion);
  return "";
}

// True if the logged rows differ, as they do if the learning rate or the logging interval was a different one.
bool is_about_rows(const std::string& difference) {
  return difference.find("log_history") != std::string::npos;
}

// Rows of metrics.jsonl have values that no checkpoint has, such as the loss scale, so they are compared as well.
std::string rows_difference(const RecordedRun& run, const fs::path& again, const RedoneSteps& steps) {
  return repeated_rows_difference(read_metrics(run.output / kMetrics), read_metrics(again / kMetrics), steps.from + 1,
                                  steps.to);
}

/// Compares the states that repeating a stretch gave with the sealed ones.
void compare_ends(const RecordedRun& run, const Stretch& stretch, const Repeated& repeated, Verification& v) {
  const auto [from, to] = stretch.steps;
  const RunDocument& document = repeated.document;
  const fs::path output = document.json["output_dir"].get<std::string>();
  for (const SealedState& sealed : stretch.ends) {
    const bool result = sealed.folder == run.output;
    const fs::path again = result ? output : output / sealed.folder.filename();
    const std::string about = fmt::format("steps {} to {}, {}", from + 1, to, name_of(run, sealed.folder));
    if (manifest_step(again) != to) {
      v.add(about, "repeating the steps does not produce it");
      continue;
    }
    ComparedState compared = compare(
        {.sealed = sealed.folder, .again = again, .renames = document.renames, .is_pending = sealed.is_pending()});
    std::vector<std::string>& found = compared.differences;
    if (result) v.result = std::move(compared.sha256);
    if (&sealed == &stretch.ends.back() && stretch.shows_records)
      if (const std::string problem = run_difference(run, repeated); !problem.empty()) found.push_back(problem);
    if (std::ranges::any_of(found, is_about_rows))
      found.emplace_back(
          "if the run was stopped within these steps and resumed with other values, give the earlier values with "
          "--earlier STEP:KEY=VALUE");
    v.add(about, fmt::format("{}", fmt::join(found, "; ")));
  }
  if (const std::string problem = rows_difference(run, output, stretch.steps); !problem.empty())
    v.add(fmt::format("steps {} to {}, {}", from + 1, to, kMetrics), problem);
}

/// Why the config does not describe the recorded run; empty: it does.
std::string config_problem(const RecordedRun& run, const fs::path& file, const RunDocument& document) {
  try {
    require_same_values(run, load_config(file), document);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::usage) throw;
    return fmt::format("cannot be repeated, because the config in {} is invalid: {}", kResolvedConfig, e.text().cause);
  }
  return "";
}

// Whether the start that wrote resolved_config.json may have repeated this stretch: a later one would have had other
// values, ranks or checkpoints.
bool is_by_last_start(const RecordedRun& run, const Stretch& stretch, const Verification& v) {
  if (v.resumed_later) return false;
  return std::ranges::all_of(stretch.ends, [&](const SealedState& s) {
    return s.folder == run.output || !s.state ||
           (keys_at_checkpoint(run, s.identity()).empty() && ranks_at_checkpoint(run, s.identity()) == run.ranks);
  });
}

bool is_full_disk(const ErrorText& text) {
  return std::ranges::any_of(std::array{ENOSPC, EDQUOT, EFBIG}, [&](int error) {
    return text.cause.find(std::generic_category().message(error)) != std::string::npos;
  });
}

// The advice of a process that could not write to the scratch folder would be about a run, not about its repetition.
std::string remedy_of(const Error& error, const fs::path& scratch) {
  const ErrorText& text = error.text();
  if (error.kind() != ErrorKind::disk) return text.remedy;
  if (is_full_disk(text)) return "name a folder on a disk with more space with --scratch";
  return text.place.starts_with(scratch.string()) ? "name another folder with --scratch" : text.remedy;
}

// Whether a signal stopped the process that wrote to an output directory, and not the number of steps that it was
// given.
bool was_stopped_by_signal(const fs::path& output) {
  const fs::path file = output / kMessages;
  if (!path_exists(file)) return false;
  std::string text = read_text(file);
  while (text.ends_with('\n')) text.pop_back();
  const Json last = json_in(std::string_view(text).substr(text.rfind('\n') + 1));
  const Json said = last.is_object() ? last.value("text", Json()) : Json();
  return said.is_string() && said.get_ref<const std::string&>().ends_with(kStoppedBySignal);
}

// Fails if this machine, not the run, is the reason why the steps were not repeated: a full disk, too little memory, or
// a process that was stopped or killed says nothing about the records.
void require_end_of_its_own(const OwnProcessEnd& end, const fs::path& last) {
  constexpr std::array kOfMachine{ErrorKind::memory, ErrorKind::disk, ErrorKind::peer};
  if (end.error && std::ranges::find(kOfMachine, end.error->kind()) != kOfMachine.end()) {
    const ErrorText& text = end.error->text();
    fail(end.error->kind(), {.cause = "the steps could not be repeated: " + text.cause,
                             .place = text.place,
                             .remedy = remedy_of(*end.error, last.parent_path().parent_path())});
  }
  const bool stopped = end.exit_code == static_cast<int>(ErrorKind::stopped);
  if (stopped && (!manifest_step(last) || was_stopped_by_signal(last.parent_path())))
    fail(ErrorKind::stopped, {.cause = "the process that repeats the steps was stopped by a signal"});
  if (end.signal == 0) return;
  fail(ErrorKind::peer, {.cause = fmt::format("the process that repeats the steps ended with signal {}", end.signal),
                         .remedy = end.signal == SIGKILL ? "if the system killed it, free some memory and run again"
                                                         : "run the same command again"});
}

// Returns false, after adding a finding, if the steps cannot be repeated.
bool redo(const RecordedRun& run, const RunDocument& document, const Start& start, const std::string& resume,
          Verification& v) {
  const fs::path output = document.json["output_dir"].get<std::string>();
  const fs::path file = output.string() + ".json";
  const std::string about = fmt::format("steps up to {}", start.until);
  write_file(file, dump_json(document.json, 2) + "\n");
  if (const std::string problem = config_problem(run, file, document); !problem.empty()) {
    v.add(about, problem);
    return false;
  }
  const OwnProcessEnd end = run_own_process(
      {"train", file.string(), "--resume", resume, "--stop_after", std::to_string(start.until), "--quiet"},
      OwnProcessOutput::kept);
  throw_if_stopped();
  require_end_of_its_own(end, output / fmt::format("checkpoint-{}", start.until));
  if (end.exit_code == 0 || end.exit_code == static_cast<int>(ErrorKind::stopped)) return true;
  v.add(about, fmt::format("cannot be repeated (exit code {}): {}{}", end.exit_code,
                           end.error ? words_of(end.error->text()) : last_lines(end.output), hint_if_moved(end)));
  return false;
}

// A start that resumes in the scratch folder looks there for its best checkpoint. That may be one before the stretch.
void link_best(const RecordedRun& run, const fs::path& checkpoint) {
  const Json best = read_json(checkpoint / kTrainerState).value("best_model_checkpoint", Json());
  if (!best.is_string()) return;
  const fs::path name = fs::path(best.get<std::string>()).filename(), link = checkpoint.parent_path() / name;
  if (step_of_checkpoint(name) >= 0 && !path_exists(link) && path_exists(run.output / name))
    fs::create_directory_symlink(run.output / name, link);
}

void redo(const RecordedRun& run, const Stretch& stretch, const VerificationOptions& options, const fs::path& scratch,
          Verification& v) {
  DocumentChanges changes = changes_for(run, stretch, scratch);
  std::string resume = stretch.from.empty() ? "never" : stretch.from.string();
  RunDocument document;
  const std::vector<Start> starts = starts_of(run, stretch, changes, options.earlier);
  for (const Start& start : starts) require_few_ranks(start.ranks);
  for (const Start& start : starts) {
    changes.keys = start.keys;
    changes.ranks = start.ranks;
    keep_apart(changes.keys, scratch);
    document = recorded_document(run, changes);
    if (!redo(run, document, start, resume, v)) return;
    resume = (changes.output / fmt::format("checkpoint-{}", start.until)).string();
    if (&start != &starts.back()) link_best(run, resume);
    if (start.until < stretch.steps.to)
      v.earlier.push_back({.until = start.until, .values = options.earlier.at(start.until), .ranks = changes.ranks});
  }
  compare_ends(run, stretch, {.document = document, .by_last_start = is_by_last_start(run, stretch, v)}, v);
  v.redone.push_back(stretch.steps);
  std::error_code ignored;
  fs::remove_all(changes.output, ignored);
}

// The checkpoint whose weights a result with load_best_model_at_end has; empty if it has those of the last step. The
// repeated last steps take them from the sealed checkpoint too, so its own steps have to be repeated as well.
std::string checkpoint_of_weights(const RecordedRun& run) {
  const auto loads_best = run.values.find("load_best_model_at_end");
  if (loads_best == run.values.end() || (*loads_best)["value"] != true) return "";
  const Json best = read_json(run.output / kTrainerState).value("best_model_checkpoint", Json());
  return best.is_string() ? fs::path(best.get<std::string>()).filename().string() : "";
}

// Moves the stretches that the weights of the result depend on to the front, or the last one if there is no result.
// Returns their number.
std::size_t put_required_first(const RecordedRun& run, std::vector<Stretch>& stretches) {
  const auto result = std::ranges::find_if(stretches, [&](const Stretch& s) { return leads_to_result(run, s); });
  if (result == stretches.end()) {
    std::iter_swap(stretches.begin(), std::prev(stretches.end()));
    stretches.front().shows_records = true;
    return 1;
  }
  result->shows_records = true;
  const std::string best = checkpoint_of_weights(run);
  const auto others = std::stable_partition(stretches.begin(), stretches.end(), [&](const Stretch& s) {
    return leads_to_result(run, s) ||
           std::ranges::any_of(s.ends, [&](const SealedState& end) { return end.folder.filename() == best; });
  });
  return static_cast<std::size_t>(others - stretches.begin());
}

}  // namespace

std::vector<Stretch> stretches_between(const std::vector<SealedState>& states) {
  std::vector<Stretch> stretches;
  for (const SealedState& s : states) {
    if (stretches.empty() || stretches.back().steps.to != s.step)
      stretches.push_back({.from = {},
                           .steps = {.from = 0, .to = s.step},
                           .ends = {},
                           .before = stretches.empty() ? 0 : stretches.back().steps.to});
    stretches.back().ends.push_back(s);
  }
  for (Stretch& stretch : stretches)
    for (const SealedState& s : states)
      if (s.is_resumable() && s.step < stretch.steps.to) {
        stretch.from = s.folder;
        stretch.steps.from = s.step;
      }
  return stretches;
}

void redo_some(const RecordedRun& run, std::vector<Stretch> stretches, const VerificationOptions& options,
               Verification& v) {
  if (stretches.empty() || options.steps <= 0) return;
  const std::size_t required = put_required_first(run, stretches);
  std::shuffle(stretches.begin() + static_cast<std::ptrdiff_t>(required), stretches.end(),
               std::mt19937_64(std::random_device{}()));
  const ScratchFolder scratch(options.scratch);
  enter_folder(run);
  std::int64_t left = options.steps;
  for (std::size_t i = 0; i < stretches.size() && left > 0; ++i) {
    const Stretch& s = stretches[i];
    options.log.info("repeating steps {} to {}", s.steps.from + 1, s.steps.to);
    redo(run, s, options, scratch.path(), v);
    if (i >= required) left -= s.steps.to - s.before;
  }
}

}  // namespace qtrain
