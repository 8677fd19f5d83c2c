#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "config/config.h"
#include "core/context.h"
#include "core/log.h"
#include "model/runner.h"
#include "train/setup/compute.h"
#include "train/setup/text_folder.h"

namespace qtrain {

/// Router loss settings from the keys of a config.
struct RouterLossRequest {
  std::optional<double> coefficient;
  std::optional<bool> is_on;
  RouterLossMode mode = RouterLossMode::trl;
};
/// Applies the request to a model's config and to the config.json that is saved with it. Throws ErrorKind::usage if
/// TRL's mode has a coefficient for a model without experts.
void apply_router_loss(const RouterLossRequest& request, ModelConfig& model);

/// The declared model of a config, before it has memory, with the dtype in which its weights are saved.
struct ModelSetup {
  std::unique_ptr<Transformer> model;
  std::filesystem::path source;                  ///< folder of the base model
  std::optional<std::filesystem::path> adapter;  ///< folder to start the adapter from
  DType saved_dtype = DType::f32;
  bool untied = false;        ///< config.json ties head and embedding, but the files contain both
  bool random_init = false;   ///< starts from random weights
  bool random_asked = false;  ///< because of random_init, not because the folder has no weights
};
/// Tokenizer and template saved with the adapter, or else those of the base model.
TextFolder load_text_folder(const ModelSetup& setup);
/// Learning rates of LoRA+, relative to the learning rate of the run.
struct LoraPlusRates {
  double b = 1, embedding = 1;
};
struct ModelRequest {
  std::string model;
  std::string dtype = "auto";  ///< dtype of the weights in memory; auto: as in the folder
  std::optional<std::string> adapter;
  std::optional<LoraConfig> lora;  ///< settings of a new adapter
  Update base = Update::frozen, adapter_update = Update::frozen;
  DType trained_dtype = DType::f32;  ///< dtype of the base weights if they are trained
  bool random_init = false;
  std::optional<Fp8RecipeChoice> fp8 = {};        ///< compute in FP8 if the compute plan has a GPU and 16-bit GEMMs
  bool fp8_forward = false;                       ///< in the forward pass, too
  std::optional<Quantization> quantization = {};  ///< for a base model that is not already quantized
  std::optional<LoraPlusRates> rates = {};
  std::optional<RouterLossRequest> router_loss = {};  ///< none: as in config.json
  Sharding sharding = {};                             ///< among ranks
  bool update_multiplies = false;                     ///< whether the optimizer's update has GEMMs
  ContextShare context = {};                          ///< how ranks share tokens
};
ModelSetup set_up_model(const ComputePlan& compute, const ModelRequest& request);
inline ModelSetup set_up_model(const Ctx& ctx, const ModelRequest& request) {
  return set_up_model(compute_plan(ctx), request);
}
/// The request for one rank of `ranks`.
ModelRequest training_request(const Config& config, int rank, int ranks);
/// The request for the first rank of the config.
inline ModelRequest training_request(const Config& config) {
  return training_request(config, 0, config.run.ranks());
}
/// Settings of a new adapter from PEFT's keys.
LoraConfig lora_from(const LoraSection& section);
/// The quantization requested by load_in_4bit, load_in_8bit, load_in_fp8 and the bitsandbytes keys.
std::optional<Quantization> quantization_asked(const QuantSection& section);

/// A warning for models without weights that start from random ones without random_init. Throws ErrorKind::input if
/// those weights would be frozen, since an adapter on them or an evaluation would be meaningless.
std::optional<std::string> advice_on_weights(const ModelSetup& setup);

/// Where the weights of a model come from: its folders, or random numbers by `seed`.
struct WeightSource {
  const ModelSetup& setup;
  std::uint64_t seed = 42;
  std::optional<std::filesystem::path> weights = {};  ///< instead of the base model's folder (a checkpoint)
  std::optional<std::filesystem::path> adapter = {};  ///< instead of the adapter's folder (a checkpoint)
  bool base_is_there = false;                         ///< load only the adapter; see Execution::base
  /// A checkpoint of a run that is resumed: instead of computing the factors of a new adapter from the base weights,
  /// they are taken from there, if it can be read.
  std::optional<std::filesystem::path> resumed = {};
};
/// Fills the weights and their copies (the caller reports random weights that are trained). Warns about unused tensors.
void load_weights(Ctx& ctx, Runner& runner, const WeightSource& source, Log& log);
/// Loads the adapter of a checkpoint of the run. If its initial factors are not those that the base weights were
/// changed with, the base weights are loaded again.
void load_trained_adapter(Ctx& ctx, Runner& runner, const ModelSetup& setup, const std::filesystem::path& file);

}  // namespace qtrain
