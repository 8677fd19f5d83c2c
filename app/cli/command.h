#pragma once
#include <string_view>
#include <vector>

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
  std::vector<Flag> idle_flags = {};       ///< taken as of every command, and not shown: nothing comes of them here
  int min_operands = 0, max_operands = 0;  ///< key=value pairs not counted
  bool overrides = false;                  ///< key=value pairs are config overrides
  bool has_result = true;                  ///< takes --json
  bool only_reads = false;                 ///< a stop ends it at once: there is no file to put away
  bool answers_stops = false;              ///< it says itself what a stop leads to, and how it ends then
  RunCommand run = nullptr;
};

}  // namespace qtrain
