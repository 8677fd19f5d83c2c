#include "model/families/blocks.h"
#include "model/families/family.h"

namespace qtrain {
namespace {

// Mistral with experts in every layer. Files name the matrices as Mistral does; transformers in memory, and adapters,
// as in other mixtures of experts.
void read_mixtral(const ConfigReader& r, ModelConfig& c) {
  for (LayerAttention& layer : c.attention) layer.window = read_window(r, 0);
  const char* count = r.get("num_experts") ? "num_experts" : "num_local_experts";
  set_experts(r, c,
              {.count = r.positive(count, 8),
               .per_token = r.positive("num_experts_per_tok", 2),
               .intermediate_size = c.intermediate_size,
               .norm = ops::TopKNorm::sum_to_one,
               .layers = std::vector<bool>(c.attention.size(), true),
               .names = {.module = "block_sparse_moe", .gate = "w1", .up = "w3", .down = "w2"}});
}

constexpr GgufKey kMixtralKeys[] = {expert_count_key("num_local_experts"), kExpertsPerTokenKey};

}  // namespace

extern const Family kMixtral{
    .model_type = "mixtral",
    .architecture = "MixtralForCausalLM",
    .read = read_mixtral,
    .layer = blocks::pre_norm_layer,
    .defaults = R"({"num_key_value_heads": 8, "max_position_embeddings": 131072,
                                             "rms_norm_eps": 1e-5, "rope_theta": 1e6, "sliding_window": null,
                                             "bos_token_id": 1, "eos_token_id": 2})",
    .gguf = {.architecture = "llama",
             .interleaves_rotary = true,
             .reads_rope_divisors = true,
             .keys = kMixtralKeys,
             .holds = [](const GgufFile& file) { return file.integer_or("llama.expert_count", 0) > 0; }}};

}  // namespace qtrain
