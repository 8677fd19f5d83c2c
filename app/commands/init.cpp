#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "app/commands/commands.h"
#include "app/commands/ranged_text.h"
#include "app/commands/read_files.h"
#include "app/commands/result_place.h"
#include "app/init/config_text.h"
#include "app/init/drafting.h"
#include "app/init/questions.h"
#include "app/next_commands.h"
#include "config/check.h"
#include "config/fields.h"
#include "config/keys.h"
#include "core/os/descriptor.h"
#include "core/os/file.h"
#include "core/os/output_place.h"
#include "core/os/stop.h"
#include "core/plural.h"
#include "train/checkpoint/foreign_results.h"
#include "train/setup/dataset_setup.h"
#include "train/tune/tune.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using init::Choice;
using init::Drafting;

constexpr const char* kConfigName = "config.json";

/// Whether the config goes to a pipe or device, which may be standard output.
bool is_stream(const fs::path& file) {
  std::error_code ignored;
  const bool is_device = file.string().starts_with("/dev/");  // a name of standard output, which may be a file
  return is_device || (fs::exists(file, ignored) && !fs::is_regular_file(file, ignored));
}

/// Fails if a word gives what a flag names.
void require_clear_words(const Arguments& args, const fs::path& file) {
  for (const auto& [written, value] : args.overrides())
    for (const auto& [key, flag] : {std::pair{"model_name_or_path", "--model"}, std::pair{"dataset_name", "--data"}})
      if (canonical_key(written) == key)
        fail(ErrorKind::usage, {.cause = fmt::format("{} is given, which {} names", written, flag),
                                .remedy = fmt::format("leave {} out", written)});
  if (is_stream(file) && args.json())
    fail(ErrorKind::usage, {.cause = "--json would be mixed with the config", .place = file.string()});
}

/// An empty file for as long as the object lives, if there is none of that name.
class StandIn {
 public:
  explicit StandIn(fs::path file)
      : file_(std::move(file)),
        made_(Descriptor(::open(file_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)).get() >= 0) {}
  ~StandIn() {
    std::error_code ignored;
    if (made_) fs::remove(file_, ignored);
  }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

 private:
  fs::path file_;
  bool made_;
};

/// Fails if runs would read the config as rows: which files they read depends on those that are there, so it has to be
/// there for this question.
void require_no_rows_at(const fs::path& file, const DataSection& data) {
  if (is_stream(file)) return;
  const fs::path place = output_place(file).file;
  const StandIn stand_in(place);
  const auto is_there = [&](const fs::path& read) {
    std::error_code ignored;
    return fs::equivalent(read, place, ignored);
  };
  for (const Split split : {Split::train, Split::evaluation})
    for (const auto& files : data_files(data, split))
      if (std::ranges::any_of(files, is_there))
        fail(ErrorKind::usage, {.cause = "the config would be read as rows, because it is among the files of the data",
                                .place = file.string(),
                                .remedy = "give an --output in another folder"});
}

/// Fails if the config cannot be written to this file, or a run could not write its output.
void require_outputs(const Arguments& args, const fs::path& file, const Config& config) {
  std::vector<fs::path> read = files_of_config({.file = "", .overrides = {}}, config);
  std::erase(read, fs::path());
  ResultFile(args, file, read);
  if (!is_stream(file)) {
    require_no_file_of_run(file, config.training.output_dir);
    read.push_back(file);
  }
  require_inputs_stay(config.training.output_dir, read);
  require_no_foreign_results(config.training.output_dir);
}

/// What to run next: the training, and what tries its result.
std::vector<std::string> commands_after(const fs::path& file, const Drafting& draft, const std::string& model) {
  const Config config = draft.config().value;
  const std::string output = shell_word(config.training.output_dir);
  const bool adapts = config.lora.use_peft || config.model.adapter_name_or_path;
  const std::string options =
      adapts ? fmt::format("--model {} --adapter {}", shell_word(model), output) : "--model " + output;
  return {fmt::format("qtrain {}{}", file.string().find('.') == std::string::npos ? "train " : "",
                      shell_word(file.string())),
          trial_command({.options = options, .has_chat_template = draft.has_chat_template()})};
}

/// The text of the file; fails if it does not mean what was chosen.
std::string checked_text(const Drafting& draft, const init::Choices& choices, const fs::path& file) {
  const std::string text = init::config_text(draft.head(), choices, file);
  const ResolvedConfig read = parse_config(text, file.filename().string());
  check(values_json(read.value) == values_json(draft.config().value), "init wrote another config than it chose");
  require_supported(read);
  return text;
}

Json json_of_init(const Drafting& draft, const fs::path& file, const std::vector<std::string>& next) {
  Json choices = Json::array();
  for (const Choice& c : draft.choices().all())
    choices.push_back({{"key", c.key}, {"value", c.value}, {"reason", c.reason}});
  return {{"output", file.string()},
          {"choices", std::move(choices)},
          {"updates", draft.updates()},
          {"seconds", usual_json(draft.seconds())},
          {"seconds_range", range_json(draft.seconds())},
          {"warnings", draft.warnings()},
          {"next", next}};
}

struct Written {
  fs::path file;
  std::vector<std::string> next;
};
void tell(const Arguments& args, const Drafting& draft, const Written& written) {
  std::string said = fmt::format("wrote {}: {}", written.file.string(), counted(draft.updates(), "update"));
  if (draft.seconds()) said += fmt::format(", predicted to take {} here", duration_range_text(*draft.seconds()));
  if (is_stream(written.file)) {  // the config may be there
    args.log().info("{}", said);
    return;
  }
  said += "\nnext:\n";
  for (const std::string& command : written.next) said += "  " + command + "\n";
  args.give({.text = std::move(said), .json = json_of_init(draft, written.file, written.next)});
}

/// Measures batches and recomputation in short trials, and takes the fastest.
void tune_draft(Drafting& draft, Log& log) {
  const Tuning tuning = tune(draft.config(), {}, log);
  throw_if_stopped();
  if (!tuning.best) return;
  for (const KeyChange& change : tuning.trials[*tuning.best].changes)
    draft.replace({.key = change.key, .value = change.value, .reason = "the fastest of the measured trials"});
}

/// The dialog of one call: what the flags name and what the user types.
class Dialog {
 public:
  explicit Dialog(const Arguments& args) : args_(args) {
    if (!args.has("yes") && !args.json() && init::can_ask()) questions_.emplace(args.log());
    model_ = named_by("model", "Which model? A folder, or its name on the hub (OWNER/NAME)");
    data_ = named_by("data", "Which rows? A file, a folder, or a name on the hub");
  }

  const std::string& model() const { return model_; }
  const std::string& data() const { return data_; }
  bool asks() const { return questions_.has_value(); }
  init::Choices::Confirm confirm() {
    if (!questions_) return {};
    return [this](const Choice& choice) { return questions_->confirm(choice); };
  }

  /// Says how to give the same answers again, if there are any.
  void tell_answers() const {
    if (!questions_ || (args_.has("model") && args_.has("data") && questions_->answers().empty())) return;
    std::string command = "qtrain init";
    const auto add = [&](const char* flag, const std::optional<std::string>& value) {
      if (value) command += fmt::format(" --{} {}", flag, shell_word(*value));
    };
    add("model", model_);
    add("revision", args_.text("revision"));
    add("data", data_);
    add("output", args_.text("output"));
    for (const char* flag : {"overwrite", "tune"})
      if (args_.has(flag)) command += fmt::format(" --{}", flag);
    for (const Overrides* words : {&args_.overrides(), &questions_->answers()})
      for (const auto& [key, value] : *words) command += " " + shell_word(shown_override(key, value));
    args_.log().stream(fmt::format("the same answers again:\n  {}\n", command));  // in one line, for a shell
  }

 private:
  /// The value of a flag, else what the user types.
  std::string named_by(const char* flag, const char* what) {
    if (const auto value = args_.text(flag)) return *value;
    return questions_ ? questions_->ask(what) : args_.required(flag);
  }

  const Arguments& args_;
  std::optional<init::Questions> questions_;
  std::string model_, data_;
};

void write_config(const Arguments& args, Dialog& dialog) {
  const fs::path file = args.text("output").value_or(kConfigName);
  const auto require_usable = [&](const ResolvedConfig& config) { require_outputs(args, file, config.value); };
  Drafting draft({.model = dialog.model(),
                  .data = dialog.data(),
                  .revision = args.text("revision").value_or(""),
                  .given = args.overrides(),
                  .files = args.has("tune") ? ModelFiles::all : ModelFiles::text,
                  .require_usable = require_usable},
                 dialog.confirm(), args.log());
  draft.look();
  require_no_rows_at(file, draft.config().value.data);
  if (dialog.asks()) draft.rehearse();
  const std::vector<std::string> told = dialog.asks() ? draft.warnings() : std::vector<std::string>{};
  for (const std::string& warning : told) args.log().warn("{}", warning);  // the answers may depend on it
  ResultFile result(args, file);
  draft.choose();
  if (args.has("tune")) tune_draft(draft, args.log());
  const std::string text = checked_text(draft, draft.choices(), file);
  if (!dialog.asks())
    for (const Choice& choice : draft.choices().all()) args.log().info("{}", init::line_of(choice));
  for (const std::string& warning : draft.warnings())
    if (std::ranges::find(told, warning) == told.end()) args.log().warn("{}", warning);
  const fs::path place = result.place_now();
  write_result(place, text);
  tell(args, draft, {.file = place, .next = commands_after(place, draft, dialog.model())});
}

}  // namespace

/// `qtrain init`: looks at a model, its data and the machine, and writes a config.
int run_init(const Arguments& args) {
  const fs::path file = args.text("output").value_or(kConfigName);
  ResultFile(args, file);  // before the work begins
  require_clear_words(args, file);
  Dialog dialog(args);
  try {
    write_config(args, dialog);
  } catch (const Error&) {
    dialog.tell_answers();
    throw;
  }
  return 0;
}

}  // namespace qtrain
