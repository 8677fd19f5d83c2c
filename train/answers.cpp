#include "train/answers.h"

#include <algorithm>

#include "train/stop.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

// generation_config.json beats config.json for the end tokens, as in transformers.
void read_generation_config(const fs::path& folder, AnswerModel& m) {
  m.stop_tokens = m.setup.model->config().eos_token_ids;
  m.sampling.greedy = true;
  const fs::path file = folder / "generation_config.json";
  if (!fs::exists(file)) return;
  const Json json = read_json(file);
  try {
    if (json.contains("eos_token_id") && !json["eos_token_id"].is_null()) {
      const Json& eos = json["eos_token_id"];
      m.stop_tokens = eos.is_array() ? eos.get<std::vector<std::int32_t>>() : std::vector{eos.get<std::int32_t>()};
    }
    m.sampling.greedy = !json.value("do_sample", false);
    m.sampling.temperature = json.value("temperature", 1.0);
    m.sampling.top_k = json.value("top_k", std::int64_t{50});
    m.sampling.top_p = json.value("top_p", 1.0);
    m.sampling.min_p = json.contains("min_p") && json["min_p"].is_number() ? json["min_p"].get<double>() : 0.0;
    m.sampling.repetition_penalty = json.value("repetition_penalty", 1.0);
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorKind::input, {.cause = std::string("a value of the wrong type: ") + e.what(), .place = file.string()});
  }
}

// The first place where one of the stop strings begins.
std::size_t find_stop(const std::string& text, const std::vector<std::string>& stop) {
  std::size_t first = std::string::npos;
  for (const std::string& s : stop) first = std::min(first, s.empty() ? std::string::npos : text.find(s));
  return first;
}

}  // namespace

AnswerModel declare_answer_model(Ctx& ctx, const AnswerModelRequest& request) {
  AnswerModel m;
  m.setup = set_up_model(ctx, {.model = request.model,
                               .dtype = request.dtype,
                               .adapter = request.adapter,
                               .random_init = request.config && request.config->model.random_init,
                               .quantisation = request.quantisation});
  m.text = request.config ? load_text_folder(*request.config) : load_text_folder(m.setup.source);
  if (request.config) m.seed = static_cast<std::uint64_t>(request.config->training.seed);
  if (m.setup.random_init && !request.config)
    fail(ErrorKind::input, {.cause = "no model.safetensors in the folder", .place = m.setup.source.string()});
  read_generation_config(m.setup.source, m);
  if (const auto eos = m.text.tokenizer->special().eos_id;
      eos && std::find(m.stop_tokens.begin(), m.stop_tokens.end(), *eos) == m.stop_tokens.end())
    m.stop_tokens.push_back(*eos);
  return m;
}

std::vector<std::int32_t> encode_chat(const TextFolder& text, const ChatPrompt& prompt) {
  if (!text.chat_template)
    fail(ErrorKind::input, {.cause = "the model folder has no chat template",
                            .remedy = "use --raw, or put a chat_template.jinja into the folder"});
  const Rendered r = text.chat_template->render({.messages = &prompt.messages,
                                                 .tools = prompt.tools.is_null() ? nullptr : &prompt.tools,
                                                 .add_generation_prompt = true,
                                                 .extra = prompt.extra.is_null() ? nullptr : &prompt.extra,
                                                 .now = text.template_clock});
  return text.tokenizer->encode(r.text, {.add_special = false});
}

std::vector<std::int32_t> encode_raw(const TextFolder& text, const std::string& prompt) {
  return text.tokenizer->encode(prompt);
}

Generator::OnToken go_on_unless_stopped() {
  return [](std::size_t, const std::vector<std::int32_t>&) {
    throw_if_stopped();
    return false;
  };
}

void Answerer::prepare(std::int64_t longest, const GeneratorOptions& options) {
  if (ready_) return;
  Generator generator(ctx_, *model_.setup.model, options);
  model_.setup.model->plan(Pass::decode, generator.largest(longest));
  model_.setup.model->commit();
  load_weights(ctx_, model_.setup, {.seed = model_.seed}, log_);
  ready_ = true;
}

std::vector<Answer> Answerer::answer(const std::vector<std::vector<std::int32_t>>& prompts, const AnswerOptions& o) {
  std::vector<GenerationRequest> requests;
  for (const auto& ids : prompts) requests.push_back({.prompt = ids, .max_new_tokens = o.max_new_tokens});
  const GeneratorOptions options{.batch = o.batch, .stop_tokens = model_.stop_tokens, .sampling = o.sampling};
  prepare(longest_sequence(requests, model_.setup.model->config()), options);
  const Tokenizer& tokenizer = *model_.text.tokenizer;
  const auto stops = [&](std::size_t request, const std::vector<std::int32_t>& tokens) {
    const bool asked = o.on_token && o.on_token(request, tokens);
    return asked || (!o.stop.empty() &&
                     find_stop(tokenizer.decode(tokens, {.skip_special = true}), o.stop) != std::string::npos);
  };
  Generator generator(ctx_, *model_.setup.model, options);
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

}  // namespace qtrain
