#include "text/template/message.h"

namespace qtrain {

std::string content_text(const Json& message) {
  const auto content = message.find("content");
  if (content == message.end()) return {};
  if (content->is_string()) return content->get<std::string>();
  std::string text;
  if (content->is_array())
    for (const Json& part : *content)
      if (part.is_object() && part.value("type", "") == "text" && part.contains("text") && part["text"].is_string())
        text += part["text"].get_ref<const std::string&>();
  return text;
}

bool is_assistant(const Json& message) {
  const auto role = message.find("role");
  return role != message.end() && *role == "assistant";
}

}  // namespace qtrain
