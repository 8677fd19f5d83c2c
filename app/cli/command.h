#pragma once
#include <string_view>
#include <vector>

#include "hub/name.h"

namespace qtrain {

/// `present` takes no value; the value of `file_or_stdout` is optional.
enum class FlagKind : std::uint8_t { present, text, integer, number, choice, repeated, file_or_stdout };

struct Flag {
  std::string_view name;  ///< without leading dashes; `_` and `-` are equivalent on the command line
  FlagKind kind = FlagKind::present;
  std::string_view value;  ///< name of the value in the help; for `choice` the choices: "cpu|cuda|auto"
  std::string_view doc;
  ModelFiles files = ModelFiles::none;  ///< what the command reads of the model or adapter that the value names
};

class Arguments;
using RunCommand = int (*)(const Arguments&);

struct Command {
  std::string_view name;
  std::string_view operands;  ///< as the help shows them: "CONFIG.json [key=value ...]", "PATH", ""
  std::string_view summary;
  std::vector<Flag> flags;
  std::vector<Flag> idle_flags = {};       ///< common flags that are accepted without effect, and hidden from the help
  int min_operands = 0, max_operands = 0;  ///< not counting key=value pairs
  bool overrides = false;                  ///< takes key=value pairs as config overrides
  bool has_result = true;                  ///< accepts --json
  bool only_reads = false;                 ///< a stop signal ends it immediately: no file needs cleanup
  bool answers_stops = false;              ///< handles stop signals itself, and says how it ends
  RunCommand run = nullptr;
  ModelFiles files = ModelFiles::none;  ///< the same for its operand
};

}  // namespace qtrain
