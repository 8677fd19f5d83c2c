#pragma once
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/formats/json.h"
#include "text/template/rendered.h"

namespace qtrain {

/// What one rendering gets to see.
struct RenderInput {
  const Json* messages = nullptr;       ///< list of message objects, not empty
  const Json* tools = nullptr;          ///< list; absent or null: `none` in the template
  const Json* documents = nullptr;      ///< the same
  bool add_generation_prompt = false;   ///< end with the header of an assistant turn
  const Json* extra = nullptr;          ///< object or null: every key becomes a variable, before the special tokens
  std::optional<std::time_t> now = {};  ///< what `strftime_now` tells; the clock if absent
};

/// A template of several, and where it was found.
struct NamedSource {
  std::string name, source, place;
};

/// A chat template as transformers' `apply_chat_template` renders it: Jinja with trim_blocks, lstrip_blocks, loop
/// controls and {% generation %}, in an immutable sandbox, with Python's values and printing.
/// Source: transformers 5 (chat_template_utils.py), Jinja 3.1.
class ChatTemplate {
 public:
  /// `name` begins every message ("name:line"); `special_tokens` (bos_token, eos_token, ...) become variables.
  /// Errors (ErrorKind::input): a syntax error, with its line.
  ChatTemplate(std::string source, std::string name, std::map<std::string, std::string> special_tokens);

  /// From templates by name, of which `tool_use` is taken for rows with tools and `default` for others; messages about
  /// a single one, or all of them, call it by the place of the last. Errors (ErrorKind::input): a syntax error, with
  /// place and line.
  ChatTemplate(const std::vector<NamedSource>& templates, std::map<std::string, std::string> special_tokens);

  /// Sets the variable of a special token ("eos_token").
  void set_special_token(const std::string& name, std::string token) { special_tokens_[name] = std::move(token); }
  /// Whether the template that rows with such tools take has {% generation %} blocks: whether a tag stands in its text,
  /// which is what TRL asks (a comment counts too).
  bool has_generation_tags(const Json* tools = nullptr) const;
  /// The template that takes the place of this one while rows for assistant_only_loss are tokenized: the training form
  /// of `default`, for rows with tools too. None if that has generation tags or is not a stock text with such a form.
  std::optional<ChatTemplate> for_training() const;
  /// Whether what is rendered may depend on `RenderInput::now`.
  bool reads_clock() const;
  /// What messages call it: a file, and what was made of it.
  const std::string& name() const { return name_; }
  /// The source of the template that rows with such tools take.
  const std::string& source(const Json* tools = nullptr) const;
  /// Those of the templates that rows take: "default", "tool_use", where there are such.
  std::map<std::string, std::string> sources() const;

  /// Safe to call from several threads at once.
  /// Errors (ErrorKind::input, with template name and line): empty or malformed messages, `raise_exception`, every
  /// error that Jinja or Python would raise, more than the permitted steps, depth or output.
  Rendered render(const RenderInput& input) const;

 private:
  struct Program;
  void add(const std::string& key, std::string source);
  const Program& program_for(const Json* tools) const;

  std::map<std::string, std::shared_ptr<const Program>> programs_;  // by name: "default", "tool_use", ...
  std::map<std::string, std::string> special_tokens_;
  std::string name_;
};

}  // namespace qtrain
