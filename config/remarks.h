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
  silent,   ///< listed with the keys that have no effect, and not said
  note,     ///< a line at the start of a command
  warning,  ///< likewise, where it is likely that something else was meant
  problem,  ///< ends the command
};

struct Remark {
  RemarkLevel level = RemarkLevel::note;
  std::string origin;        ///< "config.json:12", or what else it is about; may be empty
  std::string text;          ///< of a key that is ignored: the reason
  std::string remedy = {};   ///< of a problem
  std::string key = {};      ///< the canonical key, of what can be taken back on the command line
  std::string ignored = {};  ///< the name of a key that has no effect, as it was written
  Json value = {};           ///< its value
};

class Diagnostics {
 public:
  void say(Remark remark);
  void note(std::string origin, std::string text) { say({.origin = std::move(origin), .text = std::move(text)}); }
  void problem(std::string origin, std::string cause, std::string remedy = {});
  void problem(ErrorText text) { problem(std::move(text.place), std::move(text.cause), std::move(text.remedy)); }
  /// The line that stands before the others.
  void begin(std::string text) { remarks_.insert(remarks_.begin(), {.origin = {}, .text = std::move(text)}); }
  /// What was said of a canonical key that is given anew, or taken back.
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
/// That a key of a resolved config has no effect.
Remark ignored_key(const ResolvedConfig& config, const std::string& key, const std::string& reason);
/// Says so, with the key's place. Nothing where the key was not given.
void no_effect(ResolvedConfig& config, const std::string& key, const std::string& reason);

/// All problems as one error: one is told as it is, several as a list.
[[noreturn]] void fail_with(const std::vector<ErrorText>& problems, const std::string& place);

/// Says notes and warnings at the start of a command.
void tell_remarks(const ResolvedConfig& config, Log& log);

}  // namespace qtrain
