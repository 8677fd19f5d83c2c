#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qtrain {

/// A stock chat template with added {% generation %} blocks, and with parts of earlier answers that the stock one
/// omits.
struct TrainingForm {
  std::string_view family;
  std::string source;
};

/// The form that TRL (1.16) uses in place of a stock chat template to tokenize conversations for assistant_only_loss.
/// None unless the text equals a template known to TRL character by character.
std::optional<TrainingForm> training_form(std::string_view stock);

/// All families with a training form.
std::vector<std::string_view> training_form_families();

}  // namespace qtrain
