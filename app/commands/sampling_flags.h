#pragma once
#include "app/answers.h"
#include "app/cli/arguments.h"
#include "app/commands/model_flags.h"

namespace qtrain {

/// The model that the flags of `generate` and `chat` name.
inline AnswerModelRequest answer_request(const Arguments& args) {
  return {.model = args.required("model"),
          .adapter = args.text("adapter"),
          .dtype = args.text("dtype").value_or("auto"),
          .quantization = quantization_of(args)};
}

/// Sampling options from the flags of `generate` and `chat`, with defaults from generation_config.json.
inline AnswerOptions answer_options(const Arguments& args, const AnswerModel& model) {
  AnswerOptions o{.sampling = model.sampling,
                  .max_new_tokens = args.integer("max_new_tokens").value_or(model.max_new_tokens)};
  SamplingOptions& s = o.sampling;
  s.temperature = args.number("temperature").value_or(s.temperature);
  s.top_p = args.number("top_p").value_or(s.top_p);
  s.top_k = args.integer("top_k").value_or(s.top_k);
  s.min_p = args.number("min_p").value_or(s.min_p);
  s.repetition_penalty = args.number("repetition_penalty").value_or(s.repetition_penalty);
  s.seed = static_cast<std::uint64_t>(args.integer("seed").value_or(42));
  for (const char* sampled : {"temperature", "top_p", "top_k", "min_p"})
    if (args.has(sampled)) s.greedy = false;
  if (args.has("greedy")) s.greedy = true;
  o.stop = args.all("stop");
  o.batch = args.integer("batch_size").value_or(o.batch);
  if (s.temperature < 0 || s.top_p <= 0 || s.top_p > 1 || s.top_k < 0 || s.min_p < 0 || s.min_p > 1 ||
      s.repetition_penalty <= 0)
    fail(
        ErrorKind::usage,
        {.cause = "a sampling value is out of range",
         .remedy =
             "valid values are temperature >= 0, 0 < top_p <= 1, top_k >= 0, 0 <= min_p <= 1, repetition_penalty > 0"});
  if (o.batch < 1) fail(ErrorKind::usage, {.cause = "--batch_size must be at least 1"});
  if (o.max_new_tokens < 1) fail(ErrorKind::usage, {.cause = "--max_new_tokens must be at least 1"});
  return o;
}

}  // namespace qtrain
