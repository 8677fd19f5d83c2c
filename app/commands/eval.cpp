#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "app/answers.h"
#include "app/cli/hub_arguments.h"
#include "app/commands/commands.h"
#include "app/commands/read_files.h"
#include "app/commands/result_place.h"
#include "config/check.h"
#include "config/remarks.h"
#include "core/plural.h"
#include "data/prompts.h"
#include "data/source/raw_rows.h"
#include "report/metrics.h"
#include "train/checkpoint/measured_model.h"
#include "train/setup/compute.h"
#include "train/setup/dataset_setup.h"
#include "train/setup/model_setup.h"
#include "train/setup/text_folder.h"
#include "train/step/model_loss.h"

namespace qtrain {
namespace {

struct EvalRun {
  const Arguments& args;
  Config config;  ///< names the measured model instead of the one that training starts from
  Measured measured;
  ResultFile* rows;  ///< null without --rows
};

// Strips the surrounding whitespace, as chat templates do to answers.
std::string stripped(const std::string& s) {
  const auto begin = s.find_first_not_of(" \t\r\n");
  return begin == std::string::npos ? "" : s.substr(begin, s.find_last_not_of(" \t\r\n") - begin + 1);
}

Json loss_of(Ctx& ctx, const EvalRun& run) {
  Stopwatch watch;
  const ModelLoss found = model_loss(
      ctx, {.config = run.config, .adapter = run.measured.adapter, .max_rows = run.args.integer("limit").value_or(0)},
      run.args.log());
  const Evaluation& e = found.evaluation;
  run.args.log().info("evaluation took {:.1f} s", watch.seconds());
  return {{"measured", run.measured.kind_name()},
          {"model", run.measured.model},
          {"adapter", run.measured.adapter ? Json(*run.measured.adapter) : Json()},
          {"eval_loss", finite_or_null(e.loss())},
          {"perplexity", finite_or_null(std::exp(e.loss()))},
          {"tokens", e.tokens},
          {"target_tokens", e.target_tokens},
          {"rows", found.source_rows}};
}

// Prints the first line of the result before the measurement starts; with --json it goes to the log.
void print_measured(Log& log, const Measured& measured) {
  const std::string line = fmt::format("measured: {}", measured.describe());
  if (log.result_form() == ResultForm::lines)
    log.result(line);
  else
    log.info("{}", line);
}

void print_loss(const EvalRun& run, const Json& result) {
  run.args.log().result(fmt::format("eval_loss {}, perplexity {} over {} of {}",
                                    finite_or_words(result["eval_loss"], 4), finite_or_words(result["perplexity"], 3),
                                    counted(result["target_tokens"].get<std::int64_t>(), "target"),
                                    counted(result["rows"].get<std::int64_t>(), "row")));
}

struct Cases {
  std::vector<PromptCase> cases;
  std::vector<std::vector<std::int32_t>> prompts;
};

Cases read_cases(const EvalRun& run, const TextFolder& text) {
  const DatasetOptions o = dataset_options(run.config, Split::evaluation);
  const RawRows rows = data_rows(run.config, Split::evaluation);
  Cases out;
  const std::int64_t limit = run.args.integer("limit").value_or(rows.size());
  for (std::int64_t i = 0; i < std::min(rows.size(), limit); ++i) {
    auto one =
        prompt_case(rows, i, {.text_field = o.dataset_text_field, .chat_template = text.chat_template.has_value()});
    if (!one) continue;
    out.prompts.push_back(with_place(rows.place(i), [&] {
      return one->messages.is_null()
                 ? encode_raw(text, one->prompt)
                 : encode_chat(text, {.messages = one->messages, .tools = one->tools, .extra = one->template_kwargs});
    }));
    out.cases.push_back(std::move(*one));
  }
  if (out.cases.empty())
    fail(ErrorKind::input, {.cause = "no evaluation row has an answer to compare with",
                            .remedy = "add an assistant turn or a completion to the rows"});
  return out;
}

// Compares greedy answers with the references; writes every row to --rows.
void add_answers(Ctx& training, const EvalRun& run, Json& result) {
  const Config& c = run.config;
  const AnswerModelRequest request{.model = c.model.model_name_or_path,
                                   .adapter = run.measured.adapter,
                                   .dtype = c.model.dtype,
                                   .quantization = quantization_asked(c.quant),
                                   .config = &c};
  const ComputeChoice choice = answer_compute(request, compute_choice(c));
  std::optional<Ctx> own;
  if (plan_compute(choice).matmul != training.matmul()) own.emplace(make_context(choice, run.args.log()));
  Ctx& ctx = own ? *own : training;
  Answerer answerer(ctx, declare_answer_model(ctx, request), run.args.log());
  warn_of_unused_settings(answerer.model(), run.args.log());
  const Cases cases = read_cases(run, answerer.model().text);
  Stopwatch watch;
  const auto answers =
      answerer.answer_all(cases.prompts, {.sampling = {.greedy = true},
                                          .max_new_tokens = run.args.integer("max_new_tokens").value_or(256),
                                          .batch = run.args.integer("batch_size").value_or(64)});
  std::int64_t exact = 0, tokens = 0;
  std::string rows;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const PromptCase& k = cases.cases[i];
    const bool same = stripped(answers[i].completion) == stripped(k.reference);
    exact += same;
    tokens += answers[i].tokens;
    Json row{{"place", k.place}};
    row[k.messages.is_null() ? "prompt" : "messages"] = k.messages.is_null() ? Json(k.prompt) : k.messages;
    row.update({{"reference", k.reference},
                {"completion", answers[i].completion},
                {"exact_match", same},
                {"finish_reason", answers[i].finish_reason}});
    rows += dump_json(row) + "\n";
  }
  const double rate = static_cast<double>(exact) / static_cast<double>(answers.size());
  result["exact_match"] = rate;
  result["generated_rows"] = answers.size();
  run.args.log().info("generated {:.0f} tokens/s", static_cast<double>(tokens) / watch.seconds());
  run.args.log().result(fmt::format("exact_match {:.4f}: {} of {}", rate, exact,
                                    counted(static_cast<std::int64_t>(answers.size()), "answer")));
  if (run.rows) write_result(run.rows->place_now(), rows);
}

std::vector<std::filesystem::path> files_eval_reads(const Arguments& args, const Config& config) {
  std::vector<std::filesystem::path> files = files_of_config(args, config);
  for (const auto& more : {files_of_run(config.training.output_dir), files_of_model(args.text("adapter").value_or(""))})
    files.insert(files.end(), more.begin(), more.end());
  return files;
}

}  // namespace

int run_eval(const Arguments& args) {
  ResolvedConfig config = load_run_config(args, args.operand(0));
  require_supported(config);
  if (const DataSection& d = config.value.data; d.eval_dataset_name.empty() && d.eval_split <= 0)
    fail(ErrorKind::usage, {.cause = "\"eval_dataset_name\" is missing",
                            .place = args.operand(0),
                            .remedy = "set it in the config, or add eval_dataset_name=FILE to the command"});
  std::optional<ResultFile> rows = result_file(args, "rows", files_eval_reads(args, config.value));
  if (args.has("base") && args.has("adapter"))
    fail(ErrorKind::usage, {.cause = "--base and --adapter contradict each other", .remedy = "give only one of them"});
  args.log().show_progress(!config.value.training.disable_tqdm);
  Measured measured = choose_measured(config, {.adapter = args.text("adapter"), .start = args.has("base")});
  print_measured(args.log(), measured);
  for (const std::string& text : measured.passed_over) args.log().warn("{}", text);
  if (!measured.other_settings.empty())
    args.log().warn("it was trained with settings that differ from the config: {}",
                    fmt::join(measured.other_settings, "; "));
  remark_on_device(config);
  tell_remarks(config, args.log());
  const EvalRun run{.args = args,
                    .config = config_of(config.value, measured),
                    .measured = std::move(measured),
                    .rows = rows ? &*rows : nullptr};
  Ctx ctx = make_context(compute_choice(run.config), args.log());
  Json result = loss_of(ctx, run);
  if (!run.measured.other_settings.empty()) result["other_settings"] = run.measured.other_settings;
  print_loss(run, result);
  if (args.has("generate")) add_answers(ctx, run, result);
  args.give({.text = "", .json = std::move(result)});
  return 0;
}

}  // namespace qtrain
