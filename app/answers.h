#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "model/generation/generator.h"
#include "train/setup/model_setup.h"
#include "train/setup/text_folder.h"

namespace qtrain {

/// Contents of a generation_config.json, or the defaults without one. Its end tokens override those of config.json, as
/// in transformers.
struct GenerationDefaults {
  std::optional<std::vector<std::int32_t>> stop_tokens = {};
  SamplingOptions sampling;
  std::vector<std::string> unused = {};  ///< keys that change answers in transformers, but have no effect here
};
GenerationDefaults load_generation_defaults(const std::filesystem::path& file);

/// A model folder (and adapter) ready to answer, with the defaults of its generation_config.json.
struct AnswerModel {
  ModelSetup setup;
  TextFolder text;
  SamplingOptions sampling;
  std::int64_t max_new_tokens = 256;
  std::vector<std::int32_t> stop_tokens;
  std::uint64_t seed = 42;          ///< for random initial weights
  std::vector<std::string> unused;  ///< see GenerationDefaults
};
/// Warns of keys of its generation_config.json that have no effect.
void warn_of_unused_settings(const AnswerModel& model, Log& log);
struct AnswerModelRequest {
  std::string model;
  std::optional<std::string> adapter;
  std::string dtype = "auto";
  std::optional<Quantization> quantization = {};
  const Config* config = nullptr;  ///< gives tokenizer, template and random_init in place of the folder's
};
/// Completes `choice` for generating answers: computes in the type of the weights, independent of the training's type.
/// A float32 model answers in float32.
ComputeChoice answer_compute(const AnswerModelRequest& request, ComputeChoice choice);
/// Declares the model; it has no memory or weights yet.
AnswerModel declare_answer_model(Ctx& ctx, const AnswerModelRequest& request);

/// A prompt as tokens.
struct Prompt {
  std::vector<std::int32_t> ids;
};
/// A conversation for the chat template, with a generation prompt; `tools` and `extra` may be null.
struct ChatPrompt {
  Json messages;
  Json tools;
  Json extra;
};
std::string render_chat(const TextFolder& text, const ChatPrompt& prompt);
std::vector<std::int32_t> encode_chat(const TextFolder& text, const ChatPrompt& prompt);
/// The tokens of a rendered prompt.
std::vector<std::int32_t> encode_rendered(const TextFolder& text, const std::string& rendered);
/// The tokens of plain text, with the tokenizer's BOS.
std::vector<std::int32_t> encode_raw(const TextFolder& text, const std::string& prompt);

struct Answer {
  std::string completion;
  const char* finish_reason = "length";
  std::int64_t tokens = 0;
};
struct AnswerOptions {
  SamplingOptions sampling;
  std::int64_t max_new_tokens = 256;
  std::vector<std::string> stop;  ///< strings that end an answer and are not part of it
  std::int64_t batch = 64;
  Generator::OnToken on_token = {};
};

/// Answers prompts, in order. Plans the model, allocates its memory and loads its weights on the first call.
class Answerer {
 public:
  Answerer(Ctx& ctx, AnswerModel model, Log& log) : ctx_(ctx), model_(std::move(model)), log_(log) {}
  std::vector<Answer> answer(const std::vector<std::vector<std::int32_t>>& prompts, const AnswerOptions& options);
  /// The same for commands that write their answers at the end: a stop request ends the program immediately.
  std::vector<Answer> answer_all(const std::vector<std::vector<std::int32_t>>& prompts, const AnswerOptions& options);
  const AnswerModel& model() const { return model_; }

  /// Shares the base weights of another, prepared Answerer, which must outlive this one. Must be called first.
  void share_weights_of(const Answerer& base);
  /// Allocates memory for sequences of up to `longest` tokens and loads the weights, unless that has been done.
  void prepare(std::int64_t longest, const GeneratorOptions& options);

 private:
  Ctx& ctx_;
  AnswerModel model_;
  Log& log_;
  const Runner* base_ = nullptr;    ///< has the shared base weights, else null
  std::unique_ptr<Runner> runner_;  ///< once it has its weights
};

}  // namespace qtrain
