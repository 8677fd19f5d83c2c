#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "config/config.h"
#include "core/context.h"
#include "core/log.h"
#include "model/transformer.h"
#include "train/setup/compute.h"
#include "train/setup/text_folder.h"

namespace qtrain {

/// What the keys of a config say of the loss of routers.
struct RouterLossRequest {
  std::optional<double> coefficient;
  std::optional<bool> is_on;
  RouterLossMode mode = RouterLossMode::trl;
};
/// Makes a model's config, and the config.json that is saved with it, say what the request comes to. A usage error
/// where TRL's mode is given a coefficient for a model without experts.
void apply_router_loss(const RouterLossRequest& request, ModelConfig& model);

/// The model of a config, declared but without memory, and the dtype that its weights are saved in.
struct ModelSetup {
  std::unique_ptr<Transformer> model;
  std::filesystem::path source;                  ///< folder of the base model
  std::optional<std::filesystem::path> adapter;  ///< folder to start the adapter from
  DType saved_dtype = DType::f32;
  bool untied = false;        ///< head and embedding, against config.json: the files hold both
  bool random_init = false;   ///< it begins with random weights
  bool random_asked = false;  ///< because random_init says so, not because there are no others
};
/// Tokenizer and template that were saved with the adapter, else those of the base model.
TextFolder load_text_folder(const ModelSetup& setup);
/// Learning rates of LoRA+, as shares of that of the run.
struct LoraPlusRates {
  double b = 1, embedding = 1;
};
struct ModelRequest {
  std::string model;
  std::string dtype = "auto";  ///< of the weights in memory; auto: as in the folder
  std::optional<std::string> adapter;
  std::optional<LoraConfig> lora;  ///< a new adapter
  Update base = Update::frozen, adapter_update = Update::frozen;
  DType trained_dtype = DType::f32;  ///< of the base model's weights, if trained
  bool random_init = false;
  std::optional<Quantization> quantization = {};  ///< of a base model that is not quantized in its folder
  std::optional<LoraPlusRates> rates = {};
  std::optional<RouterLossRequest> router_loss = {};  ///< none: as config.json says
  Sharding sharding = {};                             ///< among ranks
  bool update_multiplies = false;                     ///< whether the optimizer's update has GEMMs
  ContextShare context = {};                          ///< of tokens
};
ModelSetup set_up_model(const ComputePlan& compute, const ModelRequest& request);
inline ModelSetup set_up_model(const Ctx& ctx, const ModelRequest& request) {
  return set_up_model(ComputePlan{ctx.device(), ctx.matmul()}, request);
}
/// For one of so many ranks.
ModelRequest training_request(const Config& config, int rank, int ranks);
/// For the first of those of the config.
inline ModelRequest training_request(const Config& config) {
  return training_request(config, 0, config.run.ranks());
}
/// A new adapter as the keys of PEFT describe it.
LoraConfig lora_from(const LoraSection& section);
/// What load_in_4bit, load_in_8bit and the keys of bitsandbytes ask for.
std::optional<Quantization> quantization_asked(const QuantSection& section);

/// What is to be said where a model without weights begins with random ones though nothing asks for that; an input
/// error where its weights are frozen: an adapter on them, or an evaluation, would come to nothing.
std::optional<std::string> advice_on_weights(const ModelSetup& setup);

/// Fills the weights after Transformer::commit: from the folders, or at random by `seed`, which the caller says where
/// they are trained. Warns of unused tensors.
struct WeightSource {
  std::uint64_t seed = 42;
  std::optional<std::filesystem::path> weights = {};  ///< instead of the base model's folder (a checkpoint)
  std::optional<std::filesystem::path> adapter = {};  ///< instead of the adapter's folder (a checkpoint)
  bool base_is_there = false;                         ///< only the adapter: see Transformer::commit_on
};
void load_weights(Ctx& ctx, ModelSetup& setup, const WeightSource& source, Log& log);

}  // namespace qtrain
