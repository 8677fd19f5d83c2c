#include <fmt/format.h>

#include <filesystem>
#include <optional>

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
#include "core/os/file.h"
#include "core/os/stop.h"
#include "core/plural.h"
#include "data/source/files.h"
#include "train/tune/tune.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using init::Choice;
using init::Drafting;

constexpr const char* kConfigName = "config.json";

/// The value of a flag, else what the user types.
std::string named_by(const Arguments& args, const char* flag, init::Questions* questions, const char* what) {
  if (const auto value = args.text(flag)) return *value;
  return questions ? questions->ask(what) : args.required(flag);
}

/// Whether the config goes to a pipe or device, which may be standard output.
bool is_stream(const fs::path& file) {
  std::error_code ignored;
  const bool is_device = file.string().starts_with("/dev/");  // a name of standard output, which may be a file
  return is_device || (fs::exists(file, ignored) && !fs::is_regular_file(file, ignored));
}

/// Fails if a word gives what a flag names, or if the config would be read as rows of the data.
void require_clear_names(const Arguments& args, const fs::path& file, const std::string& data) {
  for (const auto& [written, value] : args.overrides())
    for (const auto& [key, flag] : {std::pair{"model_name_or_path", "--model"}, std::pair{"dataset_name", "--data"}})
      if (canonical_key(written) == key)
        fail(ErrorKind::usage, {.cause = fmt::format("{} is given, which {} names", written, flag),
                                .remedy = fmt::format("leave {} out", written)});
  if (is_stream(file) && args.json())
    fail(ErrorKind::usage, {.cause = "--json would be mixed with the config", .place = file.string()});
  std::error_code ignored;
  const fs::path folder = fs::weakly_canonical(fs::absolute(data, ignored), ignored),
                 place = fs::weakly_canonical(fs::absolute(file, ignored), ignored),
                 below = place.lexically_relative(folder);
  const bool inside = fs::is_directory(folder, ignored) && !below.empty() && *below.begin() != "..";
  if (inside && is_data_file(place))
    fail(ErrorKind::usage, {.cause = "the config would be read as rows, because it is in the folder of the data",
                            .place = file.string(),
                            .remedy = "give an --output in another folder, or one that ends in .yaml"});
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

}  // namespace

/// `qtrain init`: looks at a model, its data and the machine, and writes a config.
int run_init(const Arguments& args) {
  const fs::path file = args.text("output").value_or(kConfigName);
  ResultFile(args, file);  // before the work begins
  std::optional<init::Questions> questions;
  if (!args.has("yes") && !args.json() && init::can_ask()) questions.emplace(args.log());
  init::Questions* asked = questions ? &*questions : nullptr;
  const std::string model =
                        named_by(args, "model", asked, "Which model? A folder, or its name on the hub (OWNER/NAME)"),
                    data = named_by(args, "data", asked, "Which rows? A file, a folder, or a name on the hub");
  require_clear_names(args, file, data);
  init::Choices::Confirm confirm;
  if (asked) confirm = [&](const Choice& choice) { return asked->confirm(choice); };
  Drafting draft({.model = model,
                  .data = data,
                  .revision = args.text("revision").value_or(""),
                  .given = args.overrides(),
                  .files = args.has("tune") ? ModelFiles::all : ModelFiles::text},
                 confirm, args.log());
  draft.run();
  if (args.has("tune")) tune_draft(draft, args.log());
  const Config config = draft.config().value;
  std::vector<fs::path> read = files_of_config({.file = "", .overrides = {}}, config);
  std::erase(read, fs::path());
  ResultFile result(args, file, read);
  const std::string text = checked_text(draft, draft.choices(), file);
  if (!asked)
    for (const Choice& choice : draft.choices().all()) args.log().info("{}", init::line_of(choice));
  for (const std::string& warning : draft.warnings()) args.log().warn("{}", warning);
  const fs::path place = result.place_now();
  write_result(place, text);
  tell(args, draft, {.file = place, .next = commands_after(place, draft, model)});
  return 0;
}

}  // namespace qtrain
