#include "train/setup/text_folder.h"

#include "core/error.h"
#include "core/os/paths.h"
#include "model/hf_folder.h"
#include "model/model_source.h"
#include "text/template/date.h"
#include "text/template/load.h"
#include "text/tokenizer/load.h"
#include "train/setup/answer_end.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_without_tokenizer(const fs::path& folder) {
  fail(ErrorKind::input, {.cause = "neither tokenizer.json nor tokenizer.model found",
                          .place = folder.string(),
                          .remedy = "put the model's tokenizer files into the folder"});
}

// Rows of input_ids need no tokenizer, so a missing one is an error only when text has to be tokenized.
class AbsentTokenizer final : public Tokenizer {
 public:
  explicit AbsentTokenizer(fs::path folder) : folder_(std::move(folder)) {}
  std::vector<std::int32_t> encode(std::string_view, EncodeOptions) const override { refuse(); }
  Encoding encode_with_offsets(std::string_view, EncodeOptions) const override { refuse(); }
  std::string decode(std::span<const std::int32_t>, DecodeOptions) const override { refuse(); }
  std::int32_t size() const override { return 0; }
  std::optional<std::int32_t> id_of(std::string_view) const override { return {}; }
  std::string token(std::int32_t) const override { refuse(); }
  bool is_special(std::int32_t) const override { return false; }
  const SpecialTokens& special() const override { return special_; }

 private:
  [[noreturn]] void refuse() const { fail_without_tokenizer(folder_); }
  fs::path folder_;
  SpecialTokens special_;
};

TextFolder load_template_folder(const fs::path& path) {
  TextFolder text{.folder = is_folder(path) ? path : path.parent_path()};
  if (has_chat_template(text.folder)) text.chat_template = load_chat_template(text.folder);
  return text;
}

/// Takes the end token from the template and sets it in the template and the tokenizer, which has to be loaded again.
void find_end(TextFolder& text, const Config& config) {
  const std::string end = end_of_answers(text, config);
  text.named_tokens["eos_token"] = end;
  for (std::optional<ChatTemplate>* made : {&text.chat_template, &text.training_template})
    if (*made) (*made)->set_special_token("eos_token", end);
  text.tokenizer = load_tokenizer(text.folder, text.named_tokens);
}

}  // namespace

bool has_tokenizer(const fs::path& folder) {
  return path_exists(folder / "tokenizer.json") || path_exists(folder / "tokenizer.model");
}

TextFolder load_template_folder(const Config& config) {
  TextFolder text =
      load_template_folder(model_folder(config.model.tokenizer_name_or_path.value_or(config.model.model_name_or_path)));
  text.named_tokens = named_tokens(config.model);
  text.replaced_template = config.model.chat_template_path.has_value();
  if (text.replaced_template) text.chat_template = load_named_template(*config.model.chat_template_path, text.folder);
  for (const auto& [name, token] : text.named_tokens)
    if (text.chat_template) text.chat_template->set_special_token(name, token);
  if (config.data.assistant_only_loss && text.chat_template)
    text.training_template = text.chat_template->for_training();
  if (config.model.template_date) text.template_clock = clock_on(*config.model.template_date);
  const bool finds_end = config.model.eos_token == kAutomaticEnd;
  if (text.named_tokens.empty() && !finds_end) return text;
  if (!has_tokenizer(text.folder)) fail_without_tokenizer(text.folder);
  text = with_tokenizer(std::move(text));
  require_tokens(text.named_tokens, *text.tokenizer);
  if (finds_end) find_end(text, config);
  return text;
}

TextFolder with_tokenizer(TextFolder text) {
  if (text.tokenizer) return text;
  if (has_tokenizer(text.folder))
    text.tokenizer = load_tokenizer(text.folder, text.named_tokens);
  else
    text.tokenizer = std::make_unique<AbsentTokenizer>(text.folder);
  return text;
}

TextFolder load_text_folder(const fs::path& path) {
  return with_tokenizer(load_template_folder(path));
}
TextFolder load_text_folder(const Config& config) {
  return with_tokenizer(load_template_folder(config));
}

void save_text_folder(const TextFolder& text, const fs::path& to) {
  copy_tokenizer_files(text.folder, to);
  if (text.replaced_template)
    write_chat_templates(text.chat_template->sources(), to);
  else
    copy_chat_templates(text.folder, to);
  if (!text.named_tokens.empty()) write_named_tokens(text.named_tokens, *text.tokenizer, to);
}

}  // namespace qtrain
