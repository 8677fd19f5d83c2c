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

/// The inputs of one rendering.
struct RenderInput {
  const Json* messages = nullptr;      ///< non-empty list of message objects
  const Json* tools = nullptr;         ///< list; absent or null: `none` in the template
  const Json* documents = nullptr;     ///< likewise
  bool add_generation_prompt = false;  ///< end with the header of an assistant turn
  const Json* extra = nullptr;         ///< object or null: every key becomes a variable; special tokens take precedence
  std::optional<std::time_t> now = {};  ///< time for `strftime_now`; absent: now
};

/// One of several templates, and where it was found.
struct NamedSource {
  std::string name, source, place;
};

/// Renders a chat template like transformers' `apply_chat_template`: Jinja with trim_blocks, lstrip_blocks, loop
/// controls and {% generation %}, in an immutable sandbox, with Python's values and formatting. Source: transformers 5
/// (chat_template_utils.py), Jinja 3.1.
class ChatTemplate {
 public:
  /// `name` starts every error message ("name:line"); `special_tokens` (bos_token, eos_token, ...) become variables.
  /// Throws ErrorKind::input with the line of a syntax error.
  ChatTemplate(std::string source, std::string name, std::map<std::string, std::string> special_tokens);

  /// Takes several named templates: `tool_use` for rows with tools and `default` for others. Messages about a single
  /// one, or about all, use the place of the last. Throws ErrorKind::input with place and line of a syntax error.
  ChatTemplate(const std::vector<NamedSource>& templates, std::map<std::string, std::string> special_tokens);

  /// Sets the variable of a special token ("eos_token").
  void set_special_token(const std::string& name, std::string token) { special_tokens_[name] = std::move(token); }
  /// Whether the template for rows with such tools contains a {% generation %} tag in its text, which is TRL's
  /// criterion (even a comment counts).
  bool has_generation_tags(const Json* tools = nullptr) const;
  /// The template used instead to tokenize rows for assistant_only_loss: the training form of `default`, for rows with
  /// tools as well. None if that has generation tags or is not a stock template with such a form.
  std::optional<ChatTemplate> for_training() const;
  /// Whether the output may depend on `RenderInput::now`.
  bool reads_clock() const;
  /// The name used in messages: a file, and what was made of it.
  const std::string& name() const { return name_; }
  /// The source of the template for rows with such tools.
  const std::string& source(const Json* tools = nullptr) const;
  /// The templates that rows use, by name: "default", "tool_use", if they exist.
  std::map<std::string, std::string> sources() const;

  /// Thread-safe. Throws ErrorKind::input (with template name and line) for empty or malformed messages,
  /// `raise_exception`, every error that Jinja or Python would raise, and exceeded limits on steps, depth or output.
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
