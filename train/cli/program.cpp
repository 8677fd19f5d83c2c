#include <fmt/format.h>

#include <filesystem>

#include "train/cli/arguments.h"
#include "train/config/keys.h"
#include "train/version.h"

namespace qtrain {
namespace {

/// Whether a first word that is no command names a config: then it stands for `train`.
bool looks_like_config(const std::string& word) {
  std::error_code ignored;
  return word.ends_with(".json") || word.ends_with(".jsonc") || word.ends_with(".yaml") || word.ends_with(".yml") ||
         word.find('/') != std::string::npos || std::filesystem::is_regular_file(word, ignored);
}

[[noreturn]] void refuse_command(const std::string& word) {
  std::vector<std::string_view> names;
  for (const Command& c : commands()) names.push_back(c.name);
  const auto near = nearest(word, names);
  fail(ErrorKind::usage,
       {.cause = fmt::format("there is no command or config file \"{}\"", word),
        .place = {},
        .remedy = near.empty() ? "qtrain --help lists the commands" : fmt::format("did you mean \"{}\"?", near)});
}

int run_command(const Command& command, std::span<const std::string> words, std::shared_ptr<Log> log) {
  const Arguments arguments(command, words, log);
  if (arguments.has("help")) {
    log->result(command_help(command));
    return 0;
  }
  if (arguments.has("quiet")) log->set_level(LogLevel::warning);
  return command.run(arguments);
}

}  // namespace

int run_program(std::span<const std::string> words, std::shared_ptr<Log> log) {
  if (words.empty()) fail(ErrorKind::usage, {.cause = "nothing to do", .place = {}, .remedy = general_help()});
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

}  // namespace qtrain
