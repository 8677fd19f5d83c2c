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

/// Kind of text that a command prints as its result.
enum class ResultText : std::uint8_t {
  people,  ///< lines for people, which may quote untrusted text from files
  data,    ///< may be read by another program
};
/// The text as written to standard output: lines for people are made `printable` and lose credentials; data stays
/// unchanged unless standard output is a terminal.
std::string written_result(const std::string& text, ResultText what);

/// Result of a command: its text (without the lines already printed) and the same as one JSON document.
struct CommandResult {
  std::string text;
  Json json;
  ResultText what = ResultText::people;  ///< kind of `text`
};

/// Parsed command line of a command: only known flags, with values of the right type.
class Arguments {
 public:
  /// `words` excludes the names of program and command. Throws ErrorKind::usage for anything the command does not take.
  Arguments(const Command& command, std::span<const std::string> words, std::shared_ptr<Log> log);

  const Command& command() const { return *command_; }
  Log& log() const { return *log_; }

  const std::vector<std::string>& operands() const { return operands_; }
  /// The operand at `index`. Throws an internal error if the command does not require that many.
  const std::string& operand(std::size_t index) const;
  const Overrides& overrides() const { return overrides_; }

  /// Whether the flag was given.
  bool has(std::string_view flag) const { return values_.contains(flag); }
  /// The value of the flag, if given. Throws an internal error if the command has no such flag.
  std::optional<std::string> text(std::string_view flag) const;
  std::optional<std::int64_t> integer(std::string_view flag) const;
  std::optional<double> number(std::string_view flag) const;
  /// All values of a `repeated` flag.
  std::vector<std::string> all(std::string_view flag) const;
  /// Replaces a value of a flag, or an operand, by what it stands for.
  void replace(std::string_view flag, std::size_t index, std::string value);
  void replace_operand(std::size_t index, std::string value) { operands_.at(index) = std::move(value); }
  /// The value of a mandatory flag. Throws ErrorKind::usage if it is missing.
  std::string required(std::string_view flag) const;

  /// Whether the result is printed as one JSON document on stdout.
  bool json() const;
  /// Prints the result, even with --quiet: the JSON document with --json, else the text.
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
