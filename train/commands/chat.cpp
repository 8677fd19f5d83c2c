#include <iostream>

#include "train/answers.h"
#include "train/cli/arguments.h"
#include "train/commands/sampling_flags.h"
#include "train/stop.h"

namespace qtrain {
namespace {

// Prints an answer as it grows.
Generator::OnToken stream_to(Log& log, StreamDecoder& decoder, std::string& answer) {
  return [&](std::size_t, const std::vector<std::int32_t>& tokens) {
    const std::string piece = decoder.push(tokens.back());
    answer += piece;
    log.result_stream(piece);
    return stop_requested();
  };
}

}  // namespace

int run_chat(const Arguments& args) {
  Ctx ctx = make_context({.device = args.device(),
                          .bf16 = args.text("dtype").value_or("auto") != "float32",
                          .threads = static_cast<int>(args.integer("threads").value_or(0))},
                         args.log());
  AnswerModel model =
      declare_answer_model(ctx, {.model = args.required("model"),
                                 .adapter = args.text("adapter"),
                                 .dtype = args.text("dtype").value_or("auto"),
                                 .quantisation = quantisation_asked({.load_in_4bit = args.has("load_in_4bit"),
                                                                     .load_in_8bit = args.has("load_in_8bit")})});
  AnswerOptions options = answer_options(args, model);
  Answerer answerer(ctx, std::move(model), args.log());
  const TextFolder& text = answerer.model().text;
  // The whole context: memory for later turns is planned at the first.
  answerer.prepare(std::min<std::int64_t>(answerer.model().setup.model->config().max_position_embeddings, 4096),
                   {.batch = 1});
  Json messages = Json::array();
  if (const auto system = args.text("system")) messages.push_back({{"role", "system"}, {"content", *system}});
  args.log().info("type a message; an empty line or Ctrl-D ends");
  for (std::string line; args.log().stream("> "), std::getline(std::cin, line) && !line.empty() && !stop_requested();) {
    messages.push_back({{"role", "user"}, {"content", line}});
    StreamDecoder decoder(*text.tokenizer, {.skip_special = true});
    std::string answer;
    options.on_token = stream_to(args.log(), decoder, answer);
    answerer.answer({encode_chat(text, {.messages = messages})}, options);
    const std::string rest = decoder.finish();
    answer += rest;
    args.log().result_stream(rest + "\n");
    messages.push_back({{"role", "assistant"}, {"content", answer}});
  }
  return 0;
}

}  // namespace qtrain
