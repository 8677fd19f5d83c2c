#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/context.h"
#include "core/log.h"
#include "data/rows.h"
#include "data/template/chat_template.h"
#include "data/tokenizer/tokenizer.h"
#include "model/transformer.h"
#include "train/compute.h"
#include "train/config/config.h"
#include "train/model_source.h"
#include "train/named_tokens.h"

namespace qtrain {

/// Tokenizer and chat template of a model folder; the template is absent where the folder has none.
struct TextFolder {
  std::filesystem::path folder;
  std::unique_ptr<Tokenizer> tokenizer = {};
  std::optional<ChatTemplate> chat_template = {};
  std::optional<ChatTemplate> training_template = {};  ///< in its place where rows are tokenised
  NamedTokens named_tokens = {};                       ///< in place of the folder's
  bool replaced_template = false;                      ///< it is not the folder's own
  std::optional<std::time_t> template_clock = {};      ///< what the template's clock shows; the time if absent

  /// What rows are made with.
  TextTools tools() const {
    const std::optional<ChatTemplate>& used = training_template ? training_template : chat_template;
    return {*tokenizer, used ? &*used : nullptr, template_clock};
  }
  bool reads_clock() const { return chat_template && chat_template->reads_clock(); }
};
TextFolder load_text_folder(const std::filesystem::path& folder);
TextFolder load_text_folder(const Config& config);
/// The same without a tokenizer, which takes longest to load, and with it.
TextFolder load_template_folder(const Config& config);
TextFolder with_tokenizer(TextFolder text);
/// Whether a folder has a tokenizer's vocabulary.
bool has_tokenizer(const std::filesystem::path& folder);
/// Writes the files of the tokenizer and of the template that are in use.
void save_text_folder(const TextFolder& text, const std::filesystem::path& to);

/// How the rows of a config are prepared. Preparing them ends with ErrorKind::stopped when a stop is asked for.
DatasetOptions dataset_options(const Config& config, Split split);
/// Training or evaluation rows of a config, eval_split taken into account; none where there is nothing to evaluate on.
RawRows data_rows(const Config& config, Split split);

/// The model of a config, declared but without memory, and the dtype that its weights are saved in.
struct ModelSetup {
  std::unique_ptr<Transformer> model;
  std::filesystem::path source;                  ///< folder of the base model
  std::optional<std::filesystem::path> adapter;  ///< folder to start the adapter from
  DType saved_dtype = DType::f32;
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
  std::string recompute = "none";
  bool random_init = false;
  std::optional<Quantisation> quantisation = {};  ///< of a base model that is not quantised in its folder
  std::optional<LoraPlusRates> rates = {};
};
ModelSetup set_up_model(const ComputePlan& compute, const ModelRequest& request);
inline ModelSetup set_up_model(const Ctx& ctx, const ModelRequest& request) {
  return set_up_model(ComputePlan{ctx.device(), ctx.matmul()}, request);
}
ModelRequest training_request(const Config& config);
/// A new adapter as the keys of PEFT describe it.
LoraConfig lora_from(const LoraSection& section);
/// An input error where rows of a config have ids or labels that its model has no embedding for: names the first row.
void require_vocabulary(const Config& config, const Dataset& rows, Split split);
/// What load_in_4bit, load_in_8bit and the keys of bitsandbytes ask for.
std::optional<Quantisation> quantisation_asked(const QuantSection& section);

/// What is to be said where a model without weights begins with random ones though nothing asks for that; an input
/// error where its weights are frozen: an adapter on them, or an evaluation, would come to nothing.
std::optional<std::string> advice_on_weights(const ModelSetup& setup);

/// Fills the weights after Transformer::commit: from the folders, or at random by `seed`, which the caller says where
/// they are trained. Warns of unused tensors.
struct WeightSource {
  std::uint64_t seed = 42;
  std::optional<std::filesystem::path> weights = {};  ///< instead of the base model's folder (a checkpoint)
  std::optional<std::filesystem::path> adapter = {};  ///< instead of the adapter's folder (a checkpoint)
};
void load_weights(Ctx& ctx, ModelSetup& setup, const WeightSource& source, Log& log);

}  // namespace qtrain
