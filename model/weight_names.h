#pragma once
#include <string_view>

/// Names of modules and weights beside the layers, as the files of Hugging Face and PEFT have them.
namespace qtrain {

inline constexpr std::string_view kEmbeddingName = "model.embed_tokens", kHeadName = "lm_head";
inline constexpr const char *kEmbeddingWeight = "model.embed_tokens.weight", *kFinalNormWeight = "model.norm.weight",
                            *kHeadWeight = "lm_head.weight";
/// What PEFT puts in front of the names of a model's modules.
inline constexpr std::string_view kPeftPrefix = "base_model.model.";

}  // namespace qtrain
