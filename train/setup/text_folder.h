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

/// Tokenizer and chat template of a model folder; the template is optional.
struct TextFolder {
  std::filesystem::path folder;
  std::unique_ptr<Tokenizer> tokenizer = {};
  std::optional<ChatTemplate> chat_template = {};
  std::optional<ChatTemplate> training_template = {};  ///< used instead when rows are tokenized for training
  NamedTokens named_tokens = {};                       ///< override those of the folder
  bool replaced_template = false;                      ///< the template is not the folder's own
  std::optional<std::time_t> template_clock = {};      ///< time that the template sees; absent: now

  /// Tokenizer and template for preparing rows.
  TextTools tools() const {
    const std::optional<ChatTemplate>& used = training_template ? training_template : chat_template;
    return {*tokenizer, used ? &*used : nullptr, template_clock};
  }
  bool reads_clock() const { return chat_template && chat_template->reads_clock(); }
};
TextFolder load_text_folder(const std::filesystem::path& folder);
TextFolder load_text_folder(const Config& config);
/// Loads everything except the tokenizer, which takes longest; with_tokenizer adds it.
TextFolder load_template_folder(const Config& config);
TextFolder with_tokenizer(TextFolder text);
/// Whether a folder contains a tokenizer vocabulary.
bool has_tokenizer(const std::filesystem::path& folder);
/// Writes the tokenizer and template files in use.
void save_text_folder(const TextFolder& text, const std::filesystem::path& to);

}  // namespace qtrain
