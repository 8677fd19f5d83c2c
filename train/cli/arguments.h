#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/log.h"
#include "train/config/config.h"

namespace qtrain {

/// `file_or_stdout` may stand without a value.
enum class FlagKind : std::uint8_t { present, text, integer, number, choice, repeated, file_or_stdout };

struct Flag {
  std::string_view name;  ///< without dashes; `_` and `-` are the same on the command line
  FlagKind kind = FlagKind::present;
  std::string_view value;  ///< what the help calls the value; for `choice` the choices: "cpu|cuda|auto"
  std::string_view doc;
};

class Arguments;
using RunCommand = int (*)(const Arguments&);

struct Command {
  std::string_view name;
  std::string_view operands;  ///< as the help shows them: "CONFIG.json [key=value ...]", "PATH", ""
  std::string_view summary;
  std::vector<Flag> flags;
  int min_operands = 0, max_operands = 0;  ///< key=value pairs not counted
  bool overrides = false;                  ///< key=value pairs are config overrides
  bool has_result = true;                  ///< takes --json
  bool only_reads = false;                 ///< a stop ends it at once: there is no file to put away
  RunCommand run = nullptr;
};

/// What a command found out: text for people (lines that came earlier are not in it), and one JSON document.
struct CommandResult {
  std::string text;
  Json json;
};

/// What the user typed, checked against the command's flags: only known flags, values of the right type.
class Arguments {
 public:
  /// `words` without program and command name. ErrorKind::usage for anything that the command does not take.
  Arguments(const Command& command, std::span<const std::string> words, std::shared_ptr<Log> log);

  const Command& command() const { return *command_; }
  Log& log() const { return *log_; }

  const std::vector<std::string>& operands() const { return operands_; }
  /// The operand at `index`; an internal error if the command does not require as many.
  const std::string& operand(std::size_t index) const;
  const Overrides& overrides() const { return overrides_; }

  /// Whether a flag was given.
  bool has(std::string_view flag) const { return values_.contains(flag); }
  /// The value of a flag, if given. Asking for a flag that the command does not have is an internal error.
  std::optional<std::string> text(std::string_view flag) const;
  std::optional<std::int64_t> integer(std::string_view flag) const;
  std::optional<double> number(std::string_view flag) const;
  /// All values of a `repeated` flag.
  std::vector<std::string> all(std::string_view flag) const;
  /// The value of a flag that the command cannot do without; ErrorKind::usage when missing.
  std::string required(std::string_view flag) const;

  /// Whether the result is one JSON document on stdout.
  bool json() const;
  /// Hands over what the command found out, also with --quiet: its document with --json, else its text.
  void give(const CommandResult& result) const;
  /// --device, or "auto".
  std::string device() const { return text("device").value_or("auto"); }

 private:
  const Flag* find(std::string_view name) const;
  void take_flag(std::span<const std::string> words, std::size_t& at);
  void take_operand(const std::string& word);

  const Command* command_;
  std::shared_ptr<Log> log_;
  std::vector<std::string> operands_;
  Overrides overrides_;
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
};

/// Every command of this build, in the order of the help.
const std::vector<Command>& commands();
/// The command of that name, or null.
const Command* find_command(std::string_view name);

/// Text of `qtrain --help` and of `qtrain COMMAND --help`.
std::string general_help();
std::string command_help(const Command& command);
/// Completion script for "bash", "zsh" or "fish".
std::string completion_script(std::string_view shell);

/// Runs the program on its words (without the program name) and returns its exit code. Throws what a command throws.
int run_program(std::span<const std::string> words, std::shared_ptr<Log> log);

/// The kind in a word, for programs: "usage".
std::string name_of(ErrorKind kind);
/// {"kind", "exit_code", "cause", "place", "remedy"}.
Json error_json(const Error& error);
/// Tells what ended the program, where --json was given also as a document {"error": error_json}, and returns the exit
/// code.
int report_error(const Error& error, Log& log);
/// The same for a stop that was asked for.
int report_stop(Log& log);

}  // namespace qtrain
