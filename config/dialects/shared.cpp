#include "config/dialects/shared.h"

#include "text/template/chat_template.h"

namespace qtrain {

bool evaluates(const ResolvedConfig& c) {
  return !c.value.data.eval_dataset_name.empty() || c.value.data.eval_split > 0;
}

void tell_answers_apart(ResolvedConfig& config) {
  const ModelSection& m = config.value.model;
  DataSection& d = config.value.data;
  if (config.given("assistant_only_loss") || !d.assistant_only_loss) return;
  if (!d.response_template.empty()) d.assistant_only_loss = false;
  const std::filesystem::path folder = m.tokenizer_name_or_path.value_or(m.model_name_or_path);
  std::error_code ignored;
  if (m.chat_template_path || !std::filesystem::is_directory(folder, ignored) || ChatTemplate::exists(folder)) return;
  d.assistant_only_loss = false;
  config.judge.note({}, "the model's folder has no chat template: rows become plain text, the loss is on completions");
}

}  // namespace qtrain
