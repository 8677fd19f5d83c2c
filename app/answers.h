#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "model/generation/generator.h"
#include "train/setup/model_setup.h"
#include "train/setup/text_folder.h"

namespace qtrain {

/// What a generation_config.json says, or would say if it were there. Its end tokens go before those of config.json, as
/// in transformers.
struct GenerationDefaults {
  std::optional<std::vector<std::int32_t>> stop_tokens = {};
  SamplingOptions sampling;
  std::vector<std::string> unused = {};  ///< keys that would change answers in transformers, and have no effect here
};
GenerationDefaults load_generation_defaults(const std::filesystem::path& file);

/// A model folder (and adapter) ready to answer, with the defaults of its generation_config.json.
struct AnswerModel {
  ModelSetup setup;
  TextFolder text;
  SamplingOptions sampling;
  std::int64_t max_new_tokens = 256;
  std::vector<std::int32_t> stop_tokens;
  std::uint64_t seed = 42;          ///< of weights that start at random
  std::vector<std::string> unused;  ///< of GenerationDefaults
};
/// Says what of its generation_config.json has no effect.
void warn_of_unused_settings(const AnswerModel& model, Log& log);
struct AnswerModelRequest {
  std::string model;
  std::optional<std::string> adapter;
  std::string dtype = "auto";
  std::optional<Quantization> quantization = {};
  const Config* config = nullptr;  ///< whose tokenizer, template and random_init count, instead of the folder's alone
};
/// How its answers are computed where `choice` leaves that open: in the type of the weights, whatever the training was
/// in. A float32 model answers in float32.
ComputeChoice answer_compute(const AnswerModelRequest& request, ComputeChoice choice);
/// The model is declared; `commit_for_answers` gives it memory and weights.
AnswerModel declare_answer_model(Ctx& ctx, const AnswerModelRequest& request);

/// One prompt as tokens.
struct Prompt {
  std::vector<std::int32_t> ids;
};
/// Through the chat template with a generation prompt; `tools` and `extra` may be null.
struct ChatPrompt {
  Json messages;
  Json tools;
  Json extra;
};
std::string render_chat(const TextFolder& text, const ChatPrompt& prompt);
std::vector<std::int32_t> encode_chat(const TextFolder& text, const ChatPrompt& prompt);
/// Its tokens.
std::vector<std::int32_t> encode_rendered(const TextFolder& text, const std::string& rendered);
/// Plain text, with the tokenizer's BOS.
std::vector<std::int32_t> encode_raw(const TextFolder& text, const std::string& prompt);

struct Answer {
  std::string completion;
  const char* finish_reason = "length";
  std::int64_t tokens = 0;
};
struct AnswerOptions {
  SamplingOptions sampling;
  std::int64_t max_new_tokens = 256;
  std::vector<std::string> stop;  ///< strings that end an answer; not part of it
  std::int64_t batch = 64;
  Generator::OnToken on_token = {};
};

/// Answers to all prompts, in order. Plans, commits and fills the model on the first call.
class Answerer {
 public:
  Answerer(Ctx& ctx, AnswerModel model, Log& log) : ctx_(ctx), model_(std::move(model)), log_(log) {}
  std::vector<Answer> answer(const std::vector<std::vector<std::int32_t>>& prompts, const AnswerOptions& options);
  /// The same for commands that write their answers at the end: a stop ends the program at once.
  std::vector<Answer> answer_all(const std::vector<std::vector<std::int32_t>>& prompts, const AnswerOptions& options);
  const AnswerModel& model() const { return model_; }

  /// Before anything else: the base weights are those of another one, which is ready and outlives this.
  void share_weights_of(const Answerer& base) { base_ = base.model_.setup.model.get(); }
  /// Plans for answers of sequences up to `longest` tokens, if the model has no memory yet.
  void prepare(std::int64_t longest, const GeneratorOptions& options);

 private:
  Ctx& ctx_;
  AnswerModel model_;
  Log& log_;
  const Transformer* base_ = nullptr;  ///< if its base weights are another one's
  bool ready_ = false;
};

}  // namespace qtrain
