#include "app/answers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "core/formats/json_view.h"
#include "core/os/paths.h"
#include "core/os/stop.h"
#include "model/model_config.h"
#include "model/model_source.h"
#include "text/template/rendered.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGenerationFile = "generation_config.json";
constexpr std::int64_t kMaxTokens = std::numeric_limits<std::int32_t>::max();

// Reads one token id or a list of ids.
std::vector<std::int32_t> token_ids(const JsonView& value) {
  const auto one = [](const JsonView& id) { return static_cast<std::int32_t>(id.integer({0, kMaxTokens})); };
  if (!value.json().is_array()) return {one(value)};
  std::vector<std::int32_t> ids;
  value.each([&](const JsonView& id) { ids.push_back(one(id)); });
  return ids;
}

/// A key of generation_config.json that is not supported, and the values that have no effect.
struct UnusedKey {
  const char* key;
  std::vector<Json> neutral;
};
// Keys of transformers' GenerationConfig, and two of vLLM. Left out are lengths, which commands and requests set,
// settings that only matter with several beams, and speculation and caches, which do not change answers.
const UnusedKey kUnusedKeys[] = {{"bad_words_ids", {Json::array()}},
                                 {"begin_suppress_tokens", {Json::array()}},
                                 {"constraints", {Json::array()}},
                                 {"dola_layers", {}},
                                 {"encoder_repetition_penalty", {1.0}},
                                 {"encoder_no_repeat_ngram_size", {0}},
                                 {"epsilon_cutoff", {0.0}},
                                 {"eta_cutoff", {0.0}},
                                 {"exponential_decay_length_penalty", {}},
                                 {"force_words_ids", {Json::array()}},
                                 {"forced_bos_token_id", {}},
                                 {"forced_decoder_ids", {Json::array()}},
                                 {"forced_eos_token_id", {}},
                                 {"frequency_penalty", {0.0}},
                                 {"guidance_scale", {1.0}},
                                 {"max_time", {}},
                                 {"min_length", {0}},
                                 {"min_new_tokens", {0}},
                                 {"no_repeat_ngram_size", {0}},
                                 {"num_beams", {1}},
                                 {"penalty_alpha", {0.0}},
                                 {"presence_penalty", {0.0}},
                                 {"sequence_bias", {Json::object(), Json::array()}},
                                 {"stop_strings", {Json::array()}},
                                 {"suppress_tokens", {Json::array()}},
                                 {"token_healing", {false}},
                                 {"top_h", {}},
                                 {"typical_p", {1.0}},
                                 {"watermarking_config", {}}};

std::vector<std::string> unused_keys(const JsonView& config) {
  std::vector<std::string> unused;
  for (const UnusedKey& u : kUnusedKeys) {
    const auto value = config.find(u.key);
    if (value && std::ranges::find(u.neutral, value->json()) == u.neutral.end()) unused.emplace_back(u.key);
  }
  return unused;
}

// The position of the first stop string in the text.
std::size_t find_stop(const std::string& text, const std::vector<std::string>& stop) {
  std::size_t first = std::string::npos;
  for (const std::string& s : stop) first = std::min(first, s.empty() ? std::string::npos : text.find(s));
  return first;
}

}  // namespace

ComputeChoice answer_compute(const AnswerModelRequest& request, ComputeChoice choice) {
  const DType weights =
      request.dtype == "auto" ? load_model_config(model_path(request.model)).dtype : dtype_named(request.dtype);
  choice.bf16 = weights == DType::bf16;
  choice.fp16 = weights == DType::f16;
  return choice;
}

GenerationDefaults load_generation_defaults(const fs::path& file) {
  GenerationDefaults d{.sampling = {.greedy = true}};
  if (!path_exists(file)) return d;
  return reading(file, [&] {
    const Json json = read_json(file);
    const JsonView config(json);
    if (const auto eos = config.find("eos_token_id")) d.stop_tokens = token_ids(*eos);
    d.sampling.greedy = !config.flag("do_sample", false);
    d.sampling.temperature = config.number("temperature", 1.0);
    const auto top_k = config.find("top_k");
    d.sampling.top_k = top_k ? top_k->integer({0, kMaxTokens}) : 50;
    d.sampling.top_p = config.number("top_p", 1.0);
    d.sampling.min_p = config.number("min_p", 0.0);
    d.sampling.repetition_penalty = config.number("repetition_penalty", 1.0);
    d.unused = unused_keys(config);
    return d;
  });
}

void warn_of_unused_settings(const AnswerModel& model, Log& log) {
  if (model.unused.empty()) return;
  log.warn("{}: {} {} no effect here, so answers may differ from those of transformers",
           (model.setup.source / kGenerationFile).string(), fmt::join(model.unused, ", "),
           model.unused.size() == 1 ? "has" : "have");
}

AnswerModel declare_answer_model(Ctx& ctx, const AnswerModelRequest& request) {
  AnswerModel m;
  m.setup = set_up_model(ctx, {.model = request.model,
                               .dtype = request.dtype,
                               .adapter = request.adapter,
                               .random_init = request.config && request.config->model.random_init,
                               .quantization = request.quantization});
  advice_on_weights(m.setup);
  m.text = request.config ? load_text_folder(*request.config) : load_text_folder(m.setup);
  if (request.config) m.seed = static_cast<std::uint64_t>(request.config->training.seed);
  GenerationDefaults defaults = load_generation_defaults(m.setup.source / kGenerationFile);
  m.unused = std::move(defaults.unused);
  m.sampling = defaults.sampling;
  m.stop_tokens = std::move(defaults.stop_tokens).value_or(m.setup.model->config().eos_token_ids);
  if (const auto eos = m.text.tokenizer->special().eos_id;
      eos && std::find(m.stop_tokens.begin(), m.stop_tokens.end(), *eos) == m.stop_tokens.end())
    m.stop_tokens.push_back(*eos);
  return m;
}

std::string render_chat(const TextFolder& text, const ChatPrompt& prompt) {
  if (!text.chat_template)
    fail(ErrorKind::input, {.cause = "the model folder has no chat template",
                            .place = text.folder.string(),
                            .remedy = "use --raw, or put a chat_template.jinja into the folder"});
  return text.chat_template
      ->render({.messages = &prompt.messages,
                .tools = prompt.tools.is_null() ? nullptr : &prompt.tools,
                .add_generation_prompt = true,
                .extra = prompt.extra.is_null() ? nullptr : &prompt.extra,
                .now = text.template_clock})
      .text;
}

std::vector<std::int32_t> encode_rendered(const TextFolder& text, const std::string& rendered) {
  return text.tokenizer->encode(rendered, {.add_special = false});
}

std::vector<std::int32_t> encode_chat(const TextFolder& text, const ChatPrompt& prompt) {
  return encode_rendered(text, render_chat(text, prompt));
}

std::vector<std::int32_t> encode_raw(const TextFolder& text, const std::string& prompt) {
  return text.tokenizer->encode(prompt);
}

void Answerer::share_weights_of(const Answerer& base) {
  check(base.runner_ && !runner_, "an answerer shares loaded weights before it loads its own");
  base_ = base.runner_.get();
}

void Answerer::prepare(std::int64_t longest, const GeneratorOptions& options) {
  if (runner_) return;
  auto runner = std::make_unique<Runner>(
      *model_.setup.model, Execution{.passes = {{Pass::decode, Generator::largest(options, longest)}}, .base = base_});
  load_weights(ctx_, *runner, {.setup = model_.setup, .seed = model_.seed, .base_is_there = base_ != nullptr}, log_);
  runner_ = std::move(runner);
}

std::vector<Answer> Answerer::answer(const std::vector<std::vector<std::int32_t>>& prompts, const AnswerOptions& o) {
  std::vector<GenerationRequest> requests;
  for (const auto& ids : prompts) requests.push_back({.prompt = ids, .max_new_tokens = o.max_new_tokens});
  GeneratorOptions options{.batch = o.batch, .stop_tokens = model_.stop_tokens, .sampling = o.sampling};
  const Tokenizer& tokenizer = *model_.text.tokenizer;
  options.sampling.vocabulary = tokenizer.size();
  prepare(longest_sequence(requests, model_.setup.model->config()), options);
  std::optional<ProgressBar> bar;  // for several answers; a single one is shown while it is generated
  if (requests.size() > 1) bar.emplace(log_, ProgressBar::Job{"answering", static_cast<std::int64_t>(requests.size())});
  if (bar) options.on_finished = [&] { bar->advance(); };
  const auto stops = [&](std::size_t request, const std::vector<std::int32_t>& tokens) {
    const bool asked = o.on_token && o.on_token(request, tokens);
    return asked || (!o.stop.empty() &&
                     find_stop(tokenizer.decode(tokens, {.skip_special = true}), o.stop) != std::string::npos);
  };
  Generator generator(ctx_, *runner_, options);
  std::vector<Answer> answers;
  for (const GenerationResult& r : generator.run(requests, stops)) {
    std::string text = tokenizer.decode(r.tokens, {.skip_special = true});
    text.resize(std::min(text.size(), find_stop(text, o.stop)));
    answers.push_back({.completion = std::move(text),
                       .finish_reason = name_of_finish(r.finish),
                       .tokens = static_cast<std::int64_t>(r.tokens.size())});
  }
  return answers;
}

std::vector<Answer> Answerer::answer_all(const std::vector<std::vector<std::int32_t>>& prompts,
                                         const AnswerOptions& options) {
  const StopsAtOnce stops;
  return answer(prompts, options);
}

}  // namespace qtrain
