#include "app/cli/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "app/cli/arguments.h"
#include "app/cli/command_table.h"
#include "app/cli/help.h"
#include "app/cli/hub_arguments.h"
#include "app/cli/near_path.h"
#include "config/keys.h"
#include "core/os/shrunk_file.h"
#include "core/os/stop.h"
#include "core/secrets.h"
#include "core/version.h"
#include "dist/final_error.h"

namespace qtrain {
namespace {

constexpr int kReaderGone = 128 + SIGPIPE;  // as if SIGPIPE had ended the process

/// Whether a first word that is not a command looks like a config file, which means `train`.
bool looks_like_config(const std::string& word) {
  std::error_code ignored;
  return word.ends_with(".json") || word.ends_with(".jsonc") || word.ends_with(".yaml") || word.ends_with(".yml") ||
         word.find('/') != std::string::npos || std::filesystem::is_regular_file(word, ignored);
}

[[noreturn]] void refuse_command(const std::string& word) {
  std::vector<std::string_view> names;
  for (const Command& c : commands()) names.push_back(c.name);
  std::error_code ignored;
  if (std::filesystem::is_directory(word, ignored))
    fail(ErrorKind::usage, {.cause = "this is a folder, not a config file",
                            .place = word,
                            .remedy = "give a config file, or use qtrain inspect to see what is in the folder"});
  const auto near = nearest(word, names);
  fail(ErrorKind::usage,
       {.cause = fmt::format("there is no command or config file \"{}\"", redacted("", word).get<std::string>()),
        .place = {},
        .remedy = near.empty() ? "qtrain --help lists the commands" : fmt::format("did you mean \"{}\"?", near)});
}

/// Whether --json is among the words; decides how errors are printed before the words are parsed.
bool asks_for_document(std::span<const std::string> words) {
  return std::any_of(words.begin(), words.end(), [](const std::string& w) { return w == "--json" || w == "-json"; });
}

int run_command(const Command& command, std::span<const std::string> words, std::shared_ptr<Log> log) {
  Arguments arguments(command, words, log);
  log->set_result_form(arguments.json() && !arguments.has("help") ? ResultForm::document : ResultForm::lines);
  if (arguments.has("help")) {
    log->result(command_help(command));
    return 0;
  }
  if (arguments.has("quiet")) log->set_level(LogLevel::warning);
  std::optional<StopsAtOnce> stops;
  if (command.only_reads) stops.emplace();
  place_names(arguments);
  const int code = command.run(arguments);
  if (!command.answers_stops && code == 0)
    finish_or_stop();  // a signal may have cut off input, which the command took for its end
  return code;
}

}  // namespace

int run_program(std::span<const std::string> words, std::shared_ptr<Log> log) {
  if (asks_for_document(words)) log->set_result_form(ResultForm::document);
  set_shrunk_file_document(asks_for_document(words));
  if (words.empty()) {
    log->info("{}\n", general_help());
    fail(ErrorKind::usage, {.cause = "nothing to do", .remedy = "give a config file or a command"});
  }
  const std::string& first = words[0];
  if (first == "--help" || first == "-h" || first == "help") {
    const Command* about = words.size() > 1 ? find_command(words[1]) : nullptr;
    log->result(about ? command_help(*about) : general_help());
    return 0;
  }
  if (first == "--version" || first == "version") {
    log->result(fmt::format("qtrain {}", kVersion));
    return 0;
  }
  if (const Command* command = find_command(first)) return run_command(*command, words.subspan(1), log);
  const Command* train = find_command("train");
  if (!train || first.starts_with("-") || !looks_like_config(first)) refuse_command(first);
  return run_command(*train, words, log);
}

std::string name_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::internal: return "internal";
    case ErrorKind::usage: return "usage";
    case ErrorKind::input: return "input";
    case ErrorKind::memory: return "memory";
    case ErrorKind::non_finite: return "non_finite";
    case ErrorKind::disk: return "disk";
    case ErrorKind::peer: return "peer";
    case ErrorKind::stopped: return "stopped";
  }
  return "internal";
}

Json error_json(const Error& error) {
  return {{"kind", name_of(error.kind())},
          {"exit_code", error.exit_code()},
          {"cause", without_credentials(error.text().cause)},
          {"place", without_credentials(error.text().place)},
          {"remedy", without_credentials(error.text().remedy)}};
}

int report_error(const Error& thrown, Log& log) {
  const Error error = with_near_path(thrown);
  if (log.reader_gone()) return kReaderGone;
  log.end_live();
  if (send_final_error(error)) return error.exit_code();
  if (error.kind() == ErrorKind::stopped)
    log.warn("{}", error.what());
  else
    log.error("{}", error.what());
  log.event("error", dump_json(error_json(error)));
  if (log.document_given()) return error.exit_code();
  try {
    log.document(dump_json({{"error", error_json(error)}}));
  } catch (const Error& unwritten) {  // stdout itself failed
    if (!log.reader_gone()) log.error("{}", unwritten.what());
  }
  return error.exit_code();
}

int report_stop(Log& log) {
  log.end_live();
  try {
    throw_if_stopped();
  } catch (const Error& stopped) {
    return report_error(stopped, log);
  }
  return 0;
}

}  // namespace qtrain
