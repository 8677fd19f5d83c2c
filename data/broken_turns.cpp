#include "data/broken_turns.h"

#include <fmt/format.h>

#include <vector>

namespace qtrain {

std::string broken_turns(const Sample& sample) {
  if (sample.shape != RowShape::chat && sample.shape != RowShape::chat_pair) return {};
  std::vector<std::string> roles;
  for (const Json* messages : {&sample.messages, &sample.completion})
    for (const Json& message : *messages) {
      const std::string role = message.at("role").get<std::string>();
      const bool more_results = role == "tool" && !roles.empty() && roles.back() == role;
      if (!more_results && !(role == "system" && roles.empty())) roles.push_back(role);
    }
  for (std::size_t i = 0; i < roles.size(); ++i) {
    const bool fits = i % 2 == 1 ? roles[i] == "assistant" : roles[i] == "user" || roles[i] == "tool";
    if (!fits)
      return fmt::format("its turns do not alternate between questions and answers: turn {} has role {}", i, roles[i]);
  }
  if (roles.empty()) return "it has no turns";
  return roles.size() % 2 == 1 ? "it does not end with an answer" : std::string();
}

}  // namespace qtrain
