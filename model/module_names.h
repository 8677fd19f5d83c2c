#pragma once
#include <string_view>

/// Names of modules and weights outside the layers, as in files of Hugging Face and PEFT.
namespace qtrain {

inline constexpr std::string_view kEmbeddingName = "model.embed_tokens", kHeadName = "lm_head";
inline constexpr const char *kEmbeddingWeight = "model.embed_tokens.weight", *kFinalNormWeight = "model.norm.weight",
                            *kHeadWeight = "lm_head.weight";
/// The prefix that PEFT adds to module names.
inline constexpr std::string_view kPeftPrefix = "base_model.model.";

}  // namespace qtrain
