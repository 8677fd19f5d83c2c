#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/cli/hub_arguments.h"
#include "app/cli/near_path.h"
#include "app/cli/program.h"
#include "app/commands/commands.h"
#include "app/commands/read_files.h"
#include "app/pushing.h"
#include "config/check.h"
#include "config/hub_names.h"
#include "config/remarks.h"
#include "core/formats/safetensors.h"
#include "core/os/stop.h"
#include "core/plural.h"
#include "core/secrets.h"
#include "data/encode.h"
#include "model/hf_folder.h"
#include "model/tied_head.h"
#include "plan/disk_plan.h"
#include "plan/machine.h"
#include "plan/memory_plan.h"
#include "plan/plan_remarks.h"
#include "report/advice.h"
#include "train/checkpoint/foreign_results.h"
#include "train/checkpoint/output_lock.h"
#include "train/setup/adapter_names.h"
#include "train/setup/compute.h"
#include "train/setup/dataset_setup.h"
#include "train/setup/model_setup.h"
#include "train/setup/row_notes.h"
#include "train/setup/step_plan.h"
#include "train/setup/text_folder.h"
#include "train/setup/vocabulary.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxRowProblems = 20;  // per file
constexpr double kMb = 1e6;

/// Collects problems, warnings, and what was checked without problems.
class Findings {
 public:
  /// Adds a problem; one that several checks find is listed once.
  void add(ErrorKind kind, ErrorText text) {
    Error problem = with_near_path({kind, std::move(text)});
    const auto same = [&](const Error& e) { return std::string_view(e.what()) == problem.what(); };
    if (std::none_of(problems_.begin(), problems_.end(), same)) problems_.push_back(std::move(problem));
  }
  void warn(std::string text) { warnings_.push_back(std::move(text)); }

  /// Runs one check and records its result or its error: unlike others, this command collects errors.
  template <class F>
  void attempt(const char* part, F&& check) {
    const std::size_t before = problems_.size();
    try {
      const std::string found = check();
      if (problems_.size() == before && !found.empty()) checked_[part] = found;
    } catch (const Error& e) {  // listed with the other problems
      if (e.kind() == ErrorKind::stopped) throw;
      add(e.kind(), e.text());
    }
  }

  /// Prints everything. Returns the exit code of the first problem; problems of the config come first.
  int report(const Arguments& args) const {
    args.give({.text = fmt::format("{}\n", fmt::join(lines(), "\n")), .json = json()});
    return problems_.empty() ? 0 : problems_.front().exit_code();
  }

 private:
  Json json() const {
    Json json{
        {"valid", problems_.empty()}, {"problems", Json::array()}, {"warnings", warnings_}, {"checked", checked_}};
    for (const Error& e : problems_)
      json["problems"].push_back({{"kind", e.kind() == ErrorKind::usage ? "config" : name_of(e.kind())},
                                  {"where", without_credentials(e.text().place)},
                                  {"cause", without_credentials(e.text().cause)},
                                  {"remedy", without_credentials(e.text().remedy)},
                                  {"exit_code", e.exit_code()}});
    return json;
  }

  std::vector<std::string> lines() const {
    std::vector<std::string> out;
    for (const auto& [part, found] : checked_.items())
      out.push_back(fmt::format("ok       {}: {}", part, found.get<std::string>()));
    for (const std::string& text : warnings_) out.push_back(fmt::format("warning  {}", text));
    for (const Error& e : problems_) out.push_back(fmt::format("problem  {}", e.what()));
    const std::size_t n = problems_.size();
    out.push_back(n == 0 ? "valid" : counted(static_cast<std::int64_t>(n), "problem"));
    return out;
  }

  std::vector<Error> problems_;
  std::vector<std::string> warnings_;
  Json checked_ = Json::object();
};

/// Rows that cannot be read or encoded, file by file: identical errors are combined, and at most kMaxRowProblems are
/// listed per file.
class RowProblems {
 public:
  explicit RowProblems(Findings& findings) : findings_(findings) {}

  /// Runs `check` on every row. Returns whether any failed.
  template <class F>
  bool collect(const RawRows& rows, F&& check) {
    bool any = false;
    for (std::int64_t i = 0; i < rows.size(); ++i) {
      throw_if_stopped();
      try {
        check(rows.parse(i));
      } catch (const Error& e) {  // listed with the other problems
        take(e, rows.place(i));
        any = true;
      }
    }
    flush();
    return any;
  }

 private:
  struct Problem {
    ErrorKind kind;
    ErrorText text;
    std::int64_t more = 0;  ///< number of further rows with the same error
  };

  void take(const Error& e, const std::string& place) {
    const std::string file = place.substr(0, place.rfind(':'));
    if (file != file_) flush();
    file_ = file;
    const auto same = std::find_if(problems_.begin(), problems_.end(), [&](const Problem& p) {
      return p.text.cause == e.text().cause && p.text.remedy == e.text().remedy;
    });
    ++bad_rows_;
    if (same != problems_.end()) {
      ++same->more;
    } else if (problems_.size() < kMaxRowProblems) {
      problems_.push_back({.kind = e.kind(), .text = e.text()});
      ErrorText& text = problems_.back().text;
      if (!text.place.starts_with(place)) text.place = text.place.empty() ? place : place + ", " + text.place;
    } else {
      ++unlisted_;
    }
  }

  void flush() {
    for (Problem& p : problems_) {
      if (p.more > 0) p.text.cause += fmt::format(" (and {})", counted(p.more, "more row"));
      findings_.add(p.kind, std::move(p.text));
    }
    if (unlisted_ > 0)
      findings_.add(
          ErrorKind::input,
          {.cause = fmt::format("{} of the {} bad rows are not listed", unlisted_, bad_rows_), .place = file_});
    problems_.clear();
    bad_rows_ = unlisted_ = 0;
  }

  Findings& findings_;
  std::string file_;
  std::vector<Problem> problems_;
  std::int64_t bad_rows_ = 0, unlisted_ = 0;
};

/// The checks of one config, in order. Each is tried even if others failed, where possible.
class Validation {
 public:
  Validation(const Arguments& args, ResolvedConfig config, Findings& findings)
      : args_(args),
        config_(std::move(config)),
        findings_(findings),
        pool_(static_cast<int>(config_.value.run.threads)) {}

  void run() {
    const Config& c = config_.value;
    for (ErrorText& e : unsupported(config_)) findings_.add(ErrorKind::usage, std::move(e));
    if (!c.data.has_training_rows())
      findings_.add(
          ErrorKind::usage,
          {.cause = "dataset_name is missing", .place = args_.operand(0), .remedy = "set it to the training rows"});
    findings_.attempt("output_dir", [&] { return check_output(); });
    findings_.attempt("machine", [&] { return check_machine(); });
    if (c.hub.push_to_hub) findings_.attempt("push_to_hub", [&] { return check_push(); });
    for (const NamedOnHub& named : config_.hub_names)
      if (!named.place) findings_.add(ErrorKind::input, not_found(named));
    const bool has_models = !lacks({"model_name_or_path", "tokenizer_name_or_path", "adapter_name_or_path"});
    if (!c.model.model_name_or_path.empty() && has_models) {
      findings_.attempt("model", [&] { return check_model(); });
      std::error_code absent;  // `check_model` has reported it
      if (c.model.tokenizer_name_or_path || fs::exists(c.model.model_name_or_path, absent))
        findings_.attempt("tokenizer", [&] { return check_text(); });
    }
    const bool has_rows = !lacks({"dataset_name", "dataset_mixture"}) && has_models;
    if (c.data.has_training_rows() && has_rows)
      findings_.attempt("training rows", [&] { return check_rows(Split::train, train_); });
    if (!has_rows || lacks({"eval_dataset_name"})) return;
    if (!c.data.eval_dataset_name.empty() || (c.data.eval_split > 0 && c.data.has_training_rows()))
      findings_.attempt("evaluation rows", [&] { return check_rows(Split::evaluation, evaluation_); });
    const bool updates = !find_optimizer(c.training.optim)->rule.empty();  // otherwise reported by `unsupported`
    if (!setup_.model || train_.size() == 0 || !updates) return;
    findings_.attempt("steps", [&] { return check_steps(); });
    findings_.attempt("memory and disk", [&] { return check_memory(); });
    findings_.attempt("disk", [&] { return check_disk(); });
  }

 private:
  /// Whether what one of these keys names on the hub is not on this machine.
  bool lacks(std::initializer_list<std::string_view> keys) const {
    return std::ranges::any_of(config_.hub_names, [&](const NamedOnHub& named) {
      return !named.place && std::ranges::find(keys, named.key) != keys.end();
    });
  }

  std::string check_output() const {
    try_output(config_.value.training.output_dir);
    require_inputs_stay(config_.value.training.output_dir, files_of_config(args_, config_.value));
    require_no_foreign_results(config_.value.training.output_dir);
    return {};
  }

  /// What can be known without asking the hub.
  std::string check_push() {
    const auto request = push_of_run(config_);
    const HubEnvironment hub = hub_environment();
    if (hub.offline)
      fail(ErrorKind::usage, {.cause = "HF_HUB_OFFLINE forbids pushing", .remedy = "unset HF_HUB_OFFLINE"});
    if (request->token.empty() && hub_token(hub).empty())
      findings_.warn(fmt::format(
          "push_to_hub: there is no token, without which a run ends at once: {}",
          hub.implicit_token ? "set HF_TOKEN, or log in with hf auth login" : "unset HF_HUB_DISABLE_IMPLICIT_TOKEN"));
    return request->name.text();
  }

  std::string check_machine() {
    ComputeChoice choice = compute_choice(config_.value);
    if (choice.device == "cuda" && !cuda_problem().empty()) choice.device = "cpu";  // reported by `unsupported`
    compute_ = plan_compute(choice);
    require_features(config_.value, compute_.device);
    return {};
  }

  std::string check_text() {
    text_ = std::make_unique<TextFolder>(load_text_folder(config_.value));
    const std::int32_t size = text_->tokenizer->size();
    if (setup_.model && size > setup_.model->config().vocab_size)
      findings_.warn(
          fmt::format("the tokenizer has {} tokens, but the model's vocabulary only {}: some tokens cannot be used",
                      size, setup_.model->config().vocab_size));
    return fmt::format("{} tokens, {}", size, text_->chat_template ? "a chat template" : "no chat template");
  }

  std::string check_model() {
    setup_ = set_up_model(compute_, training_request(config_.value));
    if (auto advice = advice_on_weights(setup_)) findings_.warn(std::move(*advice));
    for (std::string& advice : model_advice(config_.value, setup_.model->config())) findings_.warn(std::move(advice));
    if (setup_.adapter) check_adapter_keys(config_, *setup_.model->options().lora, setup_.model->config());
    if (setup_.adapter) check_tensors(setup_.model->adapter(), *setup_.adapter);
    if (!setup_.random_init) check_tensors(setup_.model->weights(), setup_.source);
    if (!setup_.random_init) check_quantized(*setup_.model, setup_.source);
    return fmt::format("{}, {:.1f} M parameters, {}", setup_.model->config().model_type,
                       static_cast<double>(setup_.model->params().elements()) / 1e6,
                       setup_.random_init ? "random initial weights" : "all tensors found");
  }

  /// Checks that the files have a tensor of the right shape for every parameter.
  void check_tensors(const ParamStore& store, const fs::path& path) {
    const SafetensorsReader reader(path);
    for (const Param& p : store.all()) {
      if (setup_.model->params().is_quantized_part(p)) continue;
      const std::string name = weight_in(reader, p.spec.name, setup_.model->config());
      if (!reader.contains(name)) {
        findings_.add(ErrorKind::input,
                      {.cause = fmt::format("tensor {} is missing", p.spec.name), .place = path.string()});
        continue;
      }
      const Shape shape = reader.at(name).shape;
      if (shape == p.spec.shape) continue;
      findings_.add(ErrorKind::input, {.cause = fmt::format("tensor {} has shape {}, but the config requires {}",
                                                            p.spec.name, to_string(shape), to_string(p.spec.shape)),
                                       .place = path.string()});
    }
  }

  /// Checks that the files have the layers that are quantized, there or by this run.
  void check_quantized(const Transformer& model, const fs::path& path) {
    if (model.quantized().empty()) return;
    const SafetensorsReader reader(path);
    for (const QuantizedLinear& q : model.quantized())
      if (!reader.contains(name_in(reader, q.name())))
        findings_.add(ErrorKind::input,
                      {.cause = fmt::format("tensor {} is missing", q.name()), .place = path.string()});
  }

  std::string check_rows(Split split, Dataset& into) {
    DatasetOptions options = dataset_options(config_.value, split);
    const RawRows rows = data_rows(config_.value, split);
    if (!text_) {
      RowProblems(findings_).collect(rows, [](const Json&) {});
      return {};
    }
    try {
      ProgressBar bar(args_.log(), {.unit = "tokenizing", .total = rows.size()});
      options.progress = [&](std::int64_t done, std::int64_t) { bar.set(done); };
      into = build_dataset(rows, options, text_->tools(), pool_);
    } catch (const Error&) {  // finds all errors, not only the first one
      const RowEncoder encoder(options, text_->tools());
      if (!RowProblems(findings_).collect(rows, [&](const Json& row) { encoder.encode(row); })) throw;
      return {};
    }
    if (setup_.model) require_vocabulary(config_.value, into, split);
    const DatasetStatistics& s = into.statistics();
    for (RowNotes::Note& note : notes_.of(s, *text_, config_.value))
      note.warns ? findings_.warn(std::move(note.text)) : args_.log().info("{}", note.text);
    if (split == Split::evaluation)  // `check_steps` covers the training rows
      for (std::string& advice : rows_advice(config_.value.data, s)) findings_.warn(std::move(advice));
    const std::string made = s.rows == s.source_rows ? "" : fmt::format(", {} after filters and packing", s.rows);
    return fmt::format("{}{}, {}, {}, {} truncated", counted(s.source_rows, "row"), made, counted(s.tokens, "token"),
                       counted(s.target_tokens, "target"), counted(s.truncated_rows, "row"));
  }

  StepPlan step_plan() const { return make_step_plan(config_.value, train_); }
  std::int64_t max_steps() const { return step_plan().max_steps; }

  std::string check_steps() {
    for (std::string& advice : data_advice(config_, train_.statistics(), step_plan()))
      findings_.warn(std::move(advice));
    return {};
  }

  std::string check_memory() {
    const TrainingSection& t = config_.value.training;
    const ModelConfig& model = setup_.model->config();
    Workload work = workload_of(t, train_, evaluation_);
    work.samples = sample_work(load_sample_prompts(config_.value, model), model);
    PlannedRun run =
        planned_run(config_.value, *setup_.model, std::move(work), target_here(compute_.device, pool_.size()));
    const MemoryPlan memory = plan_run(run, t.gradient_checkpointing.policy);
    remark_on_plan(run.target);
    return fmt::format("{}, {:.0f} MiB of memory: {}", counted(max_steps(), "update"),
                       static_cast<double>(memory.total()) / (1 << 20), memory.table());
  }

  void remark_on_plan(const TargetDevice& target) {
    const auto speed = speed_here(
        target,
        {.matmul = compute_.matmul, .threads = pool_.size(), .hidden_size = setup_.model->config().hidden_size});
    if (!speed) return;
    for (std::string& remark : plan_remarks({.config = config_.value,
                               .compute = compute_,
                               .target = target,
                               .work = [this](const Config& c) { return workload_of(c.training, train_, evaluation_); },
                               .step_work = [this](const Config& c) { return step_work(train_, c.training); },
                               .speed = *speed}))
      findings_.warn(std::move(remark));
  }

  std::string check_disk() {
    const std::string& output = config_.value.training.output_dir;
    DiskVerdict verdict = judge_disk(plan_disk(config_.value.training, setup_, step_plan()), free_disk(output));
    if (verdict.warning) findings_.warn(fmt::format("{}: {}", output, *verdict.warning));
    if (!verdict.problem) return {};
    verdict.problem->place = output;
    findings_.add(ErrorKind::disk, std::move(*verdict.problem));
    return {};
  }

  const Arguments& args_;
  ResolvedConfig config_;
  Findings& findings_;
  ComputePlan compute_;
  ThreadPool pool_;
  std::unique_ptr<TextFolder> text_;
  RowNotes notes_;
  ModelSetup setup_;
  Dataset train_, evaluation_;
};

}  // namespace

/// `qtrain validate`: checks everything that can be checked without training, and lists all problems.
int run_validate(const Arguments& args) {
  CheckedConfig checked = check_config(args.operand(0), args.overrides());
  if (args.has("fetch") && checked.problems.empty() && checked.config && !checked.config->hub_names.empty()) {
    load_run_config(args, args.operand(0));
    checked = check_config(args.operand(0), args.overrides());
  }
  Findings findings;
  for (ErrorText& e : checked.problems) findings.add(ErrorKind::usage, std::move(e));
  if (checked.config) {
    args.log().show_progress(!checked.config->value.training.disable_tqdm);
    remark_on_device(*checked.config);
    for (const std::string& note : checked.config->diagnostics.notes()) args.log().info("{}", note);
    for (const std::string& warning : checked.config->diagnostics.warnings()) findings.warn(warning);
  }
  if (checked.config) Validation(args, std::move(*checked.config), findings).run();
  return findings.report(args);
}

}  // namespace qtrain
