#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/cli/command.h"
#include "config/config.h"
#include "core/formats/json.h"
#include "core/log.h"

namespace qtrain {

/// What a piece of a result is.
enum class ResultText : std::uint8_t {
  people,  ///< lines for people, made of what files say among other things
  data,    ///< what another program may read
};
/// How it is written to standard output: lines for people are `printable` and without credentials; data is as it is,
/// unless that is a terminal.
std::string written_result(const std::string& text, ResultText what);

/// What a command found out: text (lines that came earlier are not in it), and one JSON document.
struct CommandResult {
  std::string text;
  Json json;
  ResultText what = ResultText::people;  ///< the text
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

}  // namespace qtrain
