#pragma once
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>

#include "config/config.h"
#include "data/dataset.h"
#include "text/template/chat_template.h"
#include "text/tokenizer/tokenizer.h"
#include "train/setup/named_tokens.h"

namespace qtrain {

/// Tokenizer and chat template of a model folder; the template is absent where the folder has none.
struct TextFolder {
  std::filesystem::path folder;
  std::unique_ptr<Tokenizer> tokenizer = {};
  std::optional<ChatTemplate> chat_template = {};
  std::optional<ChatTemplate> training_template = {};  ///< in its place where rows are tokenized
  NamedTokens named_tokens = {};                       ///< in place of the folder's
  bool replaced_template = false;                      ///< it is not the folder's own
  std::optional<std::time_t> template_clock = {};      ///< what the template's clock shows; the time if absent

  /// What rows are made with.
  TextTools tools() const {
    const std::optional<ChatTemplate>& used = training_template ? training_template : chat_template;
    return {*tokenizer, used ? &*used : nullptr, template_clock};
  }
  bool reads_clock() const { return chat_template && chat_template->reads_clock(); }
};
TextFolder load_text_folder(const std::filesystem::path& folder);
TextFolder load_text_folder(const Config& config);
/// The same without a tokenizer, which takes longest to load, and with it.
TextFolder load_template_folder(const Config& config);
TextFolder with_tokenizer(TextFolder text);
/// Whether a folder has a tokenizer's vocabulary.
bool has_tokenizer(const std::filesystem::path& folder);
/// Writes the files of the tokenizer and of the template that are in use.
void save_text_folder(const TextFolder& text, const std::filesystem::path& to);

}  // namespace qtrain
