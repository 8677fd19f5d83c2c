#include "app/answers.h"
#include "app/commands/commands.h"
#include "app/commands/read_files.h"
#include "app/commands/result_place.h"
#include "app/commands/sampling_flags.h"
#include "data/prompts.h"
#include "data/source/raw_rows.h"
#include "text/template/message.h"
#include "train/setup/compute.h"
#include "train/setup/text_folder.h"

namespace qtrain {
namespace {

// Tokens of a row's prompt: a conversation without its last assistant turn, or a text.
std::vector<std::int32_t> encode_row(const TextFolder& text, const Json& row, bool raw) {
  Question question = question_of(row);
  if (raw && question.text) return encode_raw(text, *question.text);
  return encode_chat(text, {.messages = std::move(question.messages),
                            .tools = std::move(question.tools),
                            .extra = std::move(question.template_kwargs)});
}

struct PromptRows {
  std::vector<Json> rows;
  std::vector<std::vector<std::int32_t>> prompts;
};

PromptRows read_prompts(const Arguments& args, const TextFolder& text) {
  PromptRows out;
  if (const auto prompt = args.text("prompt")) {
    out.rows.push_back({{"prompt", *prompt}});
    Json messages = Json::array({{{"role", "user"}, {"content", *prompt}}});
    if (const auto system = args.text("system"))
      messages.insert(messages.begin(), Json{{"role", "system"}, {"content", *system}});
    out.prompts.push_back(with_place("--prompt", [&] {
      return args.has("raw") ? encode_raw(text, *prompt) : encode_chat(text, {.messages = messages});
    }));
    return out;
  }
  const RawRows raw(resolve_data_files({args.required("input")}, Split::evaluation));
  for (std::int64_t i = 0; i < raw.size(); ++i) {
    out.rows.push_back(raw.parse(i));
    out.prompts.push_back(with_place(raw.place(i), [&] { return encode_row(text, out.rows.back(), args.has("raw")); }));
  }
  return out;
}

std::vector<std::filesystem::path> files_generate_reads(const Arguments& args) {
  std::vector<std::filesystem::path> files;
  if (const auto input = args.text("input")) {
    files = {*input};
    append_listed(files, [&] { return resolve_data_files({*input}, Split::evaluation); });
  }
  for (const char* model : {"model", "adapter"})
    for (const auto& file : files_of_model(args.text(model).value_or(""))) files.push_back(file);
  return files;
}

}  // namespace

int run_generate(const Arguments& args) {
  const AnswerModelRequest request = answer_request(args);
  if (args.has("prompt") == args.has("input"))
    fail(ErrorKind::usage, {.cause = "give either --prompt TEXT or --input FILE.jsonl"});
  std::optional<ResultFile> result = result_file(args, "output", files_generate_reads(args));
  Ctx ctx = make_context(answer_compute(request, {.device = args.device(),
                                                  .threads = static_cast<int>(args.integer("threads").value_or(0))}),
                         args.log());
  AnswerModel model = declare_answer_model(ctx, request);
  warn_of_unused_settings(model, args.log());
  const AnswerOptions options = answer_options(args, model);
  PromptRows rows = read_prompts(args, model.text);
  Answerer answerer(ctx, std::move(model), args.log());
  const auto answers = answerer.answer_all(rows.prompts, options);
  std::string lines;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    rows.rows[i].update({{"completion", answers[i].completion},
                         {"finish_reason", answers[i].finish_reason},
                         {"tokens", answers[i].tokens}});
    lines += dump_json(rows.rows[i]) + "\n";
  }
  if (result) {
    const std::filesystem::path place = result->place_now();
    write_result(place, lines);
    args.give({.text = "", .json = {{"output", place.string()}, {"rows", answers.size()}}});
  } else if (args.has("prompt")) {
    args.give({.text = answers.front().completion + "\n", .json = rows.rows.front(), .what = ResultText::data});
  } else {
    args.give({.text = lines, .json = rows.rows, .what = ResultText::data});
  }
  return 0;
}

}  // namespace qtrain
