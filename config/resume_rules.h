#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace qtrain {

/// What another value of a config key means for a run that goes on from a checkpoint.
enum class OnResume : std::uint8_t {
  refused,  ///< the rest of the run would not fit what is in the checkpoint
  rows,     ///< names the cause where the training rows have become others, which is refused; else without effect
  saved,    ///< likewise; where the rows are the same, one line says it: the saved tokenizer or template has it
  update,   ///< how the steps to come update the weights: a change that people make on purpose, which one line says
  told,     ///< the same of what the weights do not depend on, or only by rounding
  silent,   ///< results do not depend on it
};

/// The keys of one kind.
struct ResumeRule {
  OnResume kind;
  std::span<const std::string_view> keys;
};
/// Every key of config_fields once.
std::span<const ResumeRule> resume_rules();

/// That of one key; `refused` for a key that no rule names.
OnResume on_resume(std::string_view key);

}  // namespace qtrain
