#include "train/tune/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "app/cli/hub_arguments.h"
#include "app/commands/commands.h"
#include "app/commands/ranged_text.h"
#include "app/commands/read_files.h"
#include "app/commands/result_place.h"
#include "config/check.h"
#include "config/document.h"
#include "config/fields.h"
#include "config/keys.h"
#include "config/remarks.h"
#include "core/os/file.h"
#include "core/os/stop.h"
#include "core/secrets.h"
#include "train/setup/compute.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

/// The name under which the file sets a key: an alias is part of the origin, "config.json:12 (micro_batch_size)".
std::string written_name(const ResolvedConfig& config, const std::string& key) {
  const std::string& origin = config.origin.at(key);
  const auto open = origin.rfind(" (");
  if (!config.given(key) || open == std::string::npos || !origin.ends_with(')')) return key;
  return origin.substr(open + 2, origin.size() - open - 3);
}

/// The member at a dotted path; creates missing ones. Null if the path goes through a value that is not an object.
Json* member(Json& document, std::string_view path) {
  Json* at = &document;
  while (true) {
    const auto dot = path.find('.');
    if (!at->is_object() && !at->is_null()) return nullptr;
    at = &(*at)[std::string(path.substr(0, dot))];
    if (dot == std::string_view::npos) return at;
    path.remove_prefix(dot + 1);
  }
}

/// The values of a config, apart from secrets, which are not written to files.
Json values_without_secrets(const Config& config) {
  Json values = Json::object();
  const Json all = values_json(config);
  for (const auto& [key, value] : all.items())
    if (!is_secret_key(key)) values[key] = urls_without_credentials(value);
  return values;
}

/// The text of a config file with some values changed.
class ChangedConfig {
 public:
  ChangedConfig(const Arguments& args, const ResolvedConfig& resolved)
      : file_(args.operand(0)), resolved_(resolved), document_(read_config_document(file_).value) {
    for (const auto& [path, text] : args.overrides()) {
      const Json value = Json::accept(text) ? Json::parse(text) : Json(text);
      if (is_secret_key(path)) continue;  // secrets stay out of the file
      if (Json* at = member(document_, path)) *at = value;
    }
  }

  /// Writes the changes under the names that the file uses, or else under our own. Throws ErrorKind::usage if neither
  /// gives the wanted config.
  std::string with(const std::vector<KeyChange>& changes) const {
    Config wanted = resolved_.value;
    for (const KeyChange& c : changes) assign_field(wanted, c.key, c.value);
    for (const bool as_written : {true, false}) {
      Json changed = document_;
      for (const KeyChange& c : changes)
        if (Json* at = member(changed, as_written ? written_name(resolved_, c.key) : c.key)) *at = c.value;
      changed = redacted("", changed);  // it may be read by others than the config
      changed["_written_by"] = "qtrain tune";
      const std::string text = dump_json(changed, 2) + "\n";
      if (means(text, wanted)) return text;
    }
    fail(ErrorKind::usage, {.cause = "the fastest settings cannot be written with the keys of this config",
                            .place = file_.string(),
                            .remedy = "give them on the command line: " + text_of(changes)});
  }

 private:
  bool means(const std::string& text, const Config& wanted) const {
    try {
      return values_without_secrets(parse_config(text, file_.filename().replace_extension(".json").string()).value) ==
             values_without_secrets(wanted);
    } catch (const Error&) {  // keys that contradict each other
      return false;
    }
  }

  fs::path file_;
  const ResolvedConfig& resolved_;
  Json document_;
};

TuneOptions options_of(const Arguments& args) {
  TuneOptions o;
  o.steps = args.integer("steps").value_or(o.steps);
  o.trials = args.integer("trials").value_or(o.trials);
  for (const auto& [flag, value] : {std::pair("steps", o.steps), std::pair("trials", o.trials)})
    if (value < 1 || value > 10'000)
      fail(ErrorKind::usage,
           {.cause = fmt::format("--{} is {}", flag, value), .remedy = "give a number from 1 to 10000"});
  return o;
}

fs::path output_of(const Arguments& args) {
  const fs::path input = args.operand(0);
  if (const auto output = args.text("output")) return *output;
  return fs::path(input).replace_extension(".tuned.json");
}

std::string tried_text(const Trial& t) {
  if (!t.fits) return "does not fit";
  if (!t.tokens_per_second) return "not tried";
  return fmt::format("{:.0f}{}", *t.tokens_per_second, t.given_up ? " (given up)" : "");
}

std::string mib(std::optional<std::size_t> bytes) {
  return bytes ? fmt::format("{:.1f}", static_cast<double>(*bytes) / kMib) : "-";
}

std::string row_text(const Trial& t, std::string_view mark) {
  const std::string rows =
      fmt::format("{} x {}", t.micro_batching.micro_batch_size, t.micro_batching.gradient_accumulation_steps);
  return fmt::format("{:<1}{:>11}  {:<9} {:<21}{:>10}{:>9}  {}\n", mark, rows, t.recompute.name(), t.offload,
                     mib(t.planned), mib(t.measured), tried_text(t));
}

/// Table of the trials in the order in which they ran, and counts of the rest.
std::string table_text(const Tuning& tuning) {
  std::vector<const Trial*> tried;
  std::int64_t untried = 0, too_large = 0;
  for (const Trial& t : tuning.trials)
    if (t.number > 0)
      tried.push_back(&t);
    else
      ++(t.fits ? untried : too_large);
  std::ranges::sort(tried, {}, &Trial::number);
  const Trial* best = tuning.best ? &tuning.trials[*tuning.best] : nullptr;
  std::string text = fmt::format("{:>12}  {:<9} {:<21}{:>10}{:>9}  {}\n", "micro-batch", "recompute", "on the host",
                                 "planned", "measured", "tokens/s");
  for (const Trial* t : tried) text += row_text(*t, t == best ? "*" : "");
  text += "memory is in MiB; * marks the fastest\n";
  if (!tuning.trials.front().fits) text += "the config itself does not fit\n";
  return text + fmt::format("not tried: {} more that should fit, and {} that would not\n", untried, too_large);
}

std::string summary(const Tuning& tuning) {
  const Trial& best = tuning.trials[*tuning.best];
  if (tuning.best == tuning.own) return "the config is already the fastest";
  const auto speedup = tuning.speedup();
  return fmt::format("{}{}", text_of(best.changes),
                     speedup ? fmt::format("\n{:.2f} times as fast as the config", *speedup) : "");
}

Json json_of(const Tuning& tuning, const std::optional<fs::path>& written) {
  Json json{{"device", tuning.target.name},
            {"output", written ? Json(written->string()) : Json()},
            {"stopped", tuning.stopped},
            {"changes", tuning.best ? json_of(tuning.trials[*tuning.best].changes) : Json()},
            {"speedup", tuning.speedup() ? Json(*tuning.speedup()) : Json()},
            {"trials", Json::array()}};
  for (std::size_t i = 0; i < tuning.trials.size(); ++i) {
    const Trial& t = tuning.trials[i];
    json["trials"].push_back({{"changes", json_of(t.changes)},
                              {"per_device_train_batch_size", t.micro_batching.micro_batch_size},
                              {"gradient_accumulation_steps", t.micro_batching.gradient_accumulation_steps},
                              {"gradient_checkpointing", t.recompute.name()},
                              {"on_host", t.offload.empty() ? Json() : Json(t.offload)},
                              {"number", t.number},
                              {"fits", t.fits},
                              {"planned", t.planned},
                              {"measured", t.measured ? Json(*t.measured) : Json()},
                              {"tokens_per_second", t.tokens_per_second ? Json(*t.tokens_per_second) : Json()},
                              {"predicted_tokens_per_second", t.predicted.usual},
                              {"predicted_tokens_per_second_range", range_json(t.predicted)},
                              {"given_up", t.given_up},
                              {"best", tuning.best == i}});
  }
  return json;
}

[[noreturn]] void fail_without_fit(const Tuning& tuning) {
  std::size_t least = tuning.trials.front().planned;
  for (const Trial& t : tuning.trials) least = std::min(least, t.planned);
  std::vector<std::string> ways;
  for (const WayToFit& way : tuning.ways) ways.push_back(text_of(way.changes) + " fits");
  ways.emplace_back("lower max_length");
  fail(ErrorKind::memory,
       {.cause = fmt::format(
            "no micro-batch fits with any recompute policy: at least {} MiB are needed, but only {} MiB are available",
            mib(least), mib(tuning.target.memory)),
        .remedy = fmt::format("{}", fmt::join(ways, "; "))});
}

}  // namespace

/// `qtrain tune`: finds the fastest micro-batch size, recompute policy and offloading in short trials of real steps.
int run_tune(const Arguments& args) {
  ResolvedConfig config = load_run_config(args, args.operand(0));
  const TuneOptions options = options_of(args);
  std::vector<fs::path> read = files_of_config(args, config.value);
  std::erase(read, fs::path(args.operand(0)));  // --overwrite may replace the config by the result
  ResultFile result(args, output_of(args), read);
  remark_on_device(config);
  tell_remarks(config, args.log());
  require_supported(config);
  if (config.value.run.ranks() > 1)
    fail(ErrorKind::usage,
         {.cause = fmt::format("the config is for {} ranks, but tune measures one device", config.value.run.ranks()),
          .remedy = "tune with nproc=1 nnodes=1, then use the settings in the full run"});
  set_stop_answer(
      "Stopping after this step and writing the fastest so far. Press Ctrl-C again to quit now without writing.");
  const ChangedConfig output(args, config);
  Tuning tuning = tune(config, options, args.log());
  tuning.stopped = !finish_unless_stopped();
  std::optional<fs::path> written;
  if (tuning.best) {
    written = result.place_now();
    write_file(*written, output.with(tuning.trials[*tuning.best].changes));
  } else if (!tuning.stopped) {
    fail_without_fit(tuning);
  }
  std::string text = table_text(tuning);
  if (tuning.best) text += fmt::format("{}\nwrote {}\n", summary(tuning), written->string());
  args.give({.text = std::move(text), .json = json_of(tuning, written)});
  if (!tuning.stopped) return 0;
  args.log().warn("stopped: {}", written ? "wrote the fastest config measured so far" : "wrote nothing");
  return static_cast<int>(ErrorKind::stopped);
}

}  // namespace qtrain
