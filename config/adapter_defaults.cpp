#include "config/adapter_defaults.h"

#include <algorithm>
#include <array>

namespace qtrain {
namespace {

enum class NamedBy : std::uint8_t { trl, peft };

/// ModelConfig of TRL 1.16 and LoraConfig of PEFT 0.21.
const std::array<AdapterClass, 2>& classes() {
  static const std::array<AdapterClass, 2> kClasses{
      {{"trl sft", {{"lora_r", "16"}, {"lora_alpha", "32"}, {"lora_dropout", "0.05"}}},
       {"LoraConfig", {{"lora_r", "8"}, {"lora_alpha", "8"}, {"lora_dropout", "0"}}}}};
  return kClasses;
}
const AdapterClass& class_of(NamedBy by) {
  return classes()[static_cast<std::size_t>(by)];
}

struct DecidingName {
  std::string_view name;
  NamedBy by;
};
// The first of these that is there decides; lora_alpha and lora_dropout have the same name in both.
constexpr auto kDeciding = std::to_array<DecidingName>({{"lora_r", NamedBy::trl},
                                                        {"lora_rank", NamedBy::trl},
                                                        {"r", NamedBy::peft},
                                                        {"peft_config", NamedBy::peft},
                                                        {"lora_config", NamedBy::peft},
                                                        {"lora_target_modules", NamedBy::trl},
                                                        {"target_modules", NamedBy::peft},
                                                        {"lora_modules_to_save", NamedBy::trl},
                                                        {"modules_to_save", NamedBy::peft}});

}  // namespace

const AdapterClass* adapter_class(std::span<const std::string> names) {
  for (const DecidingName& deciding : kDeciding)
    if (std::find(names.begin(), names.end(), deciding.name) != names.end()) return &class_of(deciding.by);
  return nullptr;
}

const AdapterClass& usual_adapter_class() {
  return class_of(NamedBy::trl);
}

}  // namespace qtrain
