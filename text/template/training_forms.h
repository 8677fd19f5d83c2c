#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qtrain {

/// A stock chat template with {% generation %} blocks, and with what the stock one leaves out of earlier answers.
struct TrainingForm {
  std::string_view family;
  std::string source;
};

/// The form in which TRL (1.16) tokenizes conversations for assistant_only_loss in place of a stock chat template; none
/// if the text is not, character for character, one of those that TRL knows.
std::optional<TrainingForm> training_form(std::string_view stock);

/// The families there are.
std::vector<std::string_view> training_form_families();

}  // namespace qtrain
