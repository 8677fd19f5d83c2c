#include "config/rewrite_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "config/setting.h"

namespace qtrain {

RewriteRule as_key(std::string key) {
  return [key = std::move(key)](const Json& v) { return Rewritten{.settings = {{key, v}}}; };
}

RewriteRule pending(std::string_view key) {
  return as_key(kPending + std::string(key));
}

RewriteRule when_true(const std::string& key, const Json& value, const Json& otherwise) {
  return [=](const Json& v) -> Rewritten {
    if (v.is_null()) return {};
    if (!v.is_boolean()) return {.settings = {}, .problem = fmt::format("expected true or false, got {}", show(v))};
    const Json& chosen = v.get<bool>() ? value : otherwise;
    if (chosen.is_null()) return {};
    return {.settings = {{key, chosen}}};
  };
}

RewriteRule word_among(std::vector<WordMeaning> words) {
  return [words = std::move(words)](const Json& v) -> Rewritten {
    if (v.is_null()) return {};
    std::vector<std::string_view> names;
    for (const WordMeaning& w : words) {
      if (v.is_string() && v.get<std::string>() == w.word) return {.settings = w.settings};
      names.push_back(w.word);
    }
    return {.settings = {},
            .problem = fmt::format("{} is not available; available: {}", show(v), fmt::join(names, ", "))};
  };
}

RewriteRule words_of_list(std::string key) {
  return [key = std::move(key)](const Json& v) -> Rewritten {
    if (v.is_null()) return {};
    return {.settings = {{key, v.is_string() ? Json(comma_separated(v.get<std::string>())) : v}}};
  };
}

RewriteRule lora_targets(std::string_view all) {
  return [all = std::string(all)](const Json& v) -> Rewritten {
    if (v == all) return {.settings = {{"lora_target_modules", "all-linear"}}};
    return words_of_list("lora_target_modules")(v);
  };
}

RewriteRule named_template(std::vector<std::pair<std::string_view, std::string_view>> names) {
  return [names = std::move(names)](const Json& v) -> Rewritten {
    if (v.is_null() || v == "" || v == "tokenizer_default" || v == "jinja") return {};
    for (const auto& [theirs, ours] : names)
      if (v == theirs)
        return {.settings = {{"chat_template_path", ours}},
                .remarks = {fmt::format("{}: the format of that name that this program has", show(v))}};
    return {.settings = {}, .remarks = {fmt::format("{}: the chat template of the model's folder is used", show(v))}};
  };
}

Rewritten loss_on_prompt(const Json& v) {
  if (v.is_null()) return {};
  if (!v.is_boolean()) return {.settings = {}, .problem = fmt::format("expected true or false, got {}", show(v))};
  const bool masked = !v.get<bool>();
  return {.settings = {{"assistant_only_loss", masked}, {"completion_only_loss", masked}}};
}

std::vector<std::string> comma_separated(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    const auto first = part.find_first_not_of(' '), last = part.find_last_not_of(' ');
    if (first != std::string::npos) parts.push_back(part.substr(first, last - first + 1));
  }
  return parts;
}

}  // namespace qtrain
