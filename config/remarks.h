#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/formats/json.h"
#include "core/log.h"

/// Remarks about a config. Diagnostics collects them while the config is read, and each is printed once.
namespace qtrain {

enum class RemarkLevel : std::uint8_t {
  silent,   ///< listed among the keys without effect, but not printed
  note,     ///< a line at the start of a command
  warning,  ///< a line at the start, when the user probably meant something else
  problem,  ///< ends the command
};

struct Remark {
  RemarkLevel level = RemarkLevel::note;
  std::string origin;        ///< "config.json:12" or another place; may be empty
  std::string text;          ///< for an ignored key: the reason
  std::string remedy = {};   ///< how to fix a problem
  std::string key = {};      ///< the canonical key, if the command line can override it
  std::string ignored = {};  ///< the key without effect, as the user wrote it
  Json value = {};           ///< the value of that key
};

class Diagnostics {
 public:
  void say(Remark remark);
  void note(std::string origin, std::string text) { say({.origin = std::move(origin), .text = std::move(text)}); }
  void problem(std::string origin, std::string cause, std::string remedy = {});
  void problem(ErrorText text) { problem(std::move(text.place), std::move(text.cause), std::move(text.remedy)); }
  /// Adds the line that comes before all others.
  void begin(std::string text) { remarks_.insert(remarks_.begin(), {.origin = {}, .text = std::move(text)}); }
  /// Removes the remarks about a canonical key that is overridden.
  void retract(const std::string& key);

  bool found_problems() const { return count_problems() > 0; }
  std::size_t count_problems() const;
  std::vector<ErrorText> problems() const;
  std::vector<std::string> notes() const { return lines(RemarkLevel::note); }
  std::vector<std::string> warnings() const { return lines(RemarkLevel::warning); }
  /// Keys that were given and have no effect: {key: {value, origin, reason}}.
  Json ignored() const;
  bool ignores(const std::string& key) const;

 private:
  std::vector<std::string> lines(RemarkLevel level) const;

  std::vector<Remark> remarks_;
};

/// A key's remark as a line: "c.json:3: "tf32" has no effect: ...".
std::string line_of(const Remark& remark);
/// The same remark as an entry: {"value", "origin", "reason"}.
Json entry_of(const Remark& remark);

struct ResolvedConfig;
/// The remark that a key of a resolved config has no effect.
Remark ignored_key(const ResolvedConfig& config, const std::string& key, const std::string& reason);
/// Adds that remark, with the key's place, if the user gave the key.
void no_effect(ResolvedConfig& config, const std::string& key, const std::string& reason);

/// Throws all problems as one ErrorKind::usage error: a single one as it is, several as a list.
[[noreturn]] void fail_with(const std::vector<ErrorText>& problems, const std::string& place);

/// Logs notes and warnings at the start of a command.
void tell_remarks(const ResolvedConfig& config, Log& log);

}  // namespace qtrain
