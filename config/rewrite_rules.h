#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/keys.h"

namespace qtrain {

/// Rules that tables of rewrites are made of.
using RewriteRule = std::function<Rewritten(const Json&)>;
/// A word and the settings that it stands for.
struct WordMeaning {
  std::string_view word;
  std::vector<std::pair<std::string, Json>> settings;
};

/// The same value under another key.
RewriteRule as_key(std::string key);
/// For a key that is read once all others are known: a pending setting of that name.
RewriteRule pending(std::string_view key);
/// A switch that sets one key when true and another value (null: nothing) when false.
RewriteRule when_true(const std::string& key, const Json& value, const Json& otherwise = nullptr);
/// A word that stands for settings.
RewriteRule word_among(std::vector<WordMeaning> words);
/// "a, b" as a list of words, for a key that takes one; a list stays one.
RewriteRule words_of_list(std::string key);
/// Modules to adapt: "all" is all-linear, "a,b" a list.
RewriteRule lora_targets(std::string_view all);

/// Names of chat templates as chat_template_path has them; for other names the model's own template is used.
RewriteRule named_template(std::vector<std::pair<std::string_view, std::string_view>> names);
/// Whether the loss is on the prompt as well: neither mask, or both.
Rewritten loss_on_prompt(const Json& v);

/// The lists of data sets of trl (path, data_files, split, ...) and of axolotl (path, type, field_messages, ...).
Rewritten training_datasets(const Json& v);
/// One, or a list of them, whose rows are plain texts.
Rewritten pretraining_datasets(const Json& v);
Rewritten evaluation_datasets(const Json& v);

/// The parts between commas, without blanks around them.
std::vector<std::string> comma_separated(const std::string& text);

}  // namespace qtrain
