#include <fmt/format.h>

#include <algorithm>

#include "core/safetensors.h"
#include "model/hf_folder.h"
#include "train/cli/arguments.h"
#include "train/device_batch.h"
#include "train/machine.h"
#include "train/setup.h"
#include "train/step_plan.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostRowProblems = 20;
constexpr double kMb = 1e6;

/// The checks of one config, in order; each part is tried though others failed, where it can be.
class Validation {
 public:
  Validation(const Arguments& args, ResolvedConfig config) : args_(args), config_(std::move(config)) {}

  void run() {
    for (ErrorText& e : unsupported(config_)) add(ErrorKind::usage, std::move(e));
    if (config_.value.data.dataset_name.empty())
      add(ErrorKind::usage,
          {.cause = "dataset_name is missing", .place = args_.operand(0), .remedy = "name the training rows"});
    attempt("machine", [&] { ctx_ = std::make_unique<Ctx>(make_context(compute_choice(config_.value), args_.log())); });
    attempt("tokenizer", [&] { return check_text(); });
    attempt("model", [&] { return check_model(); });
    attempt("training rows", [&] { return check_rows(Split::train, train_); });
    if (!config_.value.data.eval_dataset_name.empty())
      attempt("evaluation rows", [&] { return check_rows(Split::evaluation, evaluation_); });
    if (setup_.model && train_.size() > 0) attempt("memory and disk", [&] { return check_sizes(); });
  }

  void add(ErrorKind kind, ErrorText text) { problems_.emplace_back(kind, std::move(text)); }

  /// Says what was found; the exit code is that of the first problem.
  int report() const {
    Log& log = args_.log();
    Json json{{"valid", problems_.empty()}, {"problems", Json::array()}, {"checked", checked_}};
    for (const Error& e : problems_)
      json["problems"].push_back({{"place", e.text().place},
                                  {"cause", e.text().cause},
                                  {"remedy", e.text().remedy},
                                  {"exit_code", e.exit_code()}});
    if (args_.json()) {
      log.result(dump_json(json, 2));
    } else {
      for (const auto& [part, found] : checked_.items())
        log.result(fmt::format("ok       {}: {}", part, found.get<std::string>()));
      for (const Error& e : problems_) log.result(fmt::format("problem  {}", e.what()));
      log.result(problems_.empty() ? "valid" : fmt::format("{} problems", problems_.size()));
    }
    return problems_.empty() ? 0 : problems_.front().exit_code();
  }

 private:
  /// Runs one part and notes what it found, or its error: this command is where errors are collected.
  template <class F>
  void attempt(const char* part, F&& check) {
    const std::size_t before = problems_.size();
    try {
      if constexpr (std::is_void_v<decltype(check())>) {
        check();
      } else {
        const std::string found = check();
        if (problems_.size() == before && !found.empty()) checked_[part] = found;
      }
    } catch (const Error& e) {  // listed with the others
      add(e.kind(), e.text());
    }
  }

  std::string check_text() {
    text_ = std::make_unique<TextFolder>(load_text_folder(config_.value));
    return fmt::format("{} tokens, {}", text_->tokenizer->size(),
                       text_->chat_template ? "a chat template" : "no chat template");
  }

  std::string check_model() {
    if (!ctx_) return {};
    setup_ = set_up_model(*ctx_, training_request(config_.value));
    if (setup_.adapter) check_adapter_keys(config_, *setup_.model->options().lora);
    if (setup_.adapter) check_tensors(setup_.model->adapter(), *setup_.adapter);
    if (!setup_.random_init) check_tensors(setup_.model->weights(), setup_.source);
    if (text_ && text_->tokenizer->size() > setup_.model->config().vocab_size)
      args_.log().warn("the tokenizer has {} entries, the model's vocabulary {}", text_->tokenizer->size(),
                       setup_.model->config().vocab_size);
    return fmt::format("{}, {:.1f} M parameters, {}", setup_.model->config().model_type,
                       static_cast<double>(setup_.model->weights().elements()) / 1e6,
                       setup_.random_init ? "starting at random" : "all tensors there");
  }

  /// Every parameter has a tensor of its shape in the files.
  void check_tensors(const ParamStore& store, const fs::path& path) {
    const SafetensorsReader reader(path);
    for (const Param& p : store.all()) {
      if (!reader.contains(p.spec.name)) {
        add(ErrorKind::input, {.cause = fmt::format("tensor {} is missing", p.spec.name), .place = path.string()});
        continue;
      }
      const Shape shape = reader.at(p.spec.name).shape;
      if (shape == p.spec.shape) continue;
      add(ErrorKind::input, {.cause = fmt::format("tensor {} is {}, the config makes it {}", p.spec.name,
                                                  to_string(shape), to_string(p.spec.shape)),
                             .place = path.string()});
    }
  }

  std::string check_rows(Split split, Dataset& into) {
    const DatasetOptions options = dataset_options(config_.value, split);
    if (options.files.empty()) return {};
    const RawRows rows(resolve_data_files(options.files, split));
    if (!rows_parse(rows) || !text_ || !ctx_) return {};
    into = build_dataset(rows, options, text_->tools(), ctx_->pool());
    const DatasetStatistics& s = into.statistics();
    const bool fits = !setup_.model || s.max_token_id < setup_.model->config().vocab_size;
    if (!fits)
      add(ErrorKind::input, {.cause = fmt::format("the rows have token id {}, the model's vocabulary has {} entries",
                                                  s.max_token_id, setup_.model->config().vocab_size),
                             .remedy = "the tokenizer does not belong to this model"});
    if (s.target_tokens == 0)
      add(ErrorKind::input, {.cause = "no row has a token to learn", .place = options.files[0]});
    return fmt::format("{} rows of {}, {} tokens, {} targets, {} rows cut", s.rows, s.source_rows, s.tokens,
                       s.target_tokens, s.truncated_rows);
  }

  /// Whether every row is a JSON object; the first that are not are listed.
  bool rows_parse(const RawRows& rows) {
    std::size_t bad = 0;
    for (std::int64_t i = 0; i < rows.size() && bad < kMostRowProblems; ++i) try {
        rows.parse(i);
      } catch (const Error& e) {  // listed with the others
        add(e.kind(), e.text());
        ++bad;
      }
    return bad == 0;
  }

  std::string check_sizes() {
    const TrainingSection& t = config_.value.training;
    const Loader loader(train_, {.batch_size = t.per_device_train_batch_size, .drop_last = t.dataloader_drop_last});
    const StepPlan plan = make_step_plan(t, loader.batches_per_epoch());
    Transformer& model = *setup_.model;
    model.plan(Pass::train, largest_batch(loader, train_));
    double weights = 0, trained = 0;
    for (const ParamStore* store : {&model.weights(), &model.adapter()})
      for (const Param& p : store->all()) {
        const double bytes = static_cast<double>(p.spec.shape.numel()) * static_cast<double>(size_of(p.spec.dtype));
        weights += bytes;
        if (p.trained()) trained += bytes;
      }
    const double activations = static_cast<double>(model.activations().planned());
    const double needed = weights + 3 * trained + activations;  // gradient and two moments
    const double usable = machine_memory().usable();
    if (usable > 0 && needed > usable)
      add(ErrorKind::memory,
          {.cause = fmt::format("about {:.0f} MB needed (weights {:.0f}, gradients and optimizer {:.0f}, activations "
                                "{:.0f}), {:.0f} MB there",
                                needed / kMb, weights / kMb, 3 * trained / kMb, activations / kMb, usable / kMb),
           .remedy = "lower per_device_train_batch_size or max_length and raise gradient_accumulation_steps"});
    check_disk(weights, trained, plan.max_steps);
    return fmt::format(
        "{} updates, about {:.0f} MB of memory: weights {:.0f}, gradients and optimizer {:.0f}, activations {:.0f}",
        plan.max_steps, needed / kMb, weights / kMb, 3 * trained / kMb, activations / kMb);
  }

  /// A checkpoint holds the trained weights and two moments; checkpoints that are kept, one in the making, the result.
  void check_disk(double weights, double trained, std::int64_t max_steps) {
    const TrainingSection& t = config_.value.training;
    std::int64_t kept = 0;
    if (t.save_strategy == SaveStrategy::steps)
      kept = max_steps / std::max<std::int64_t>(1, interval_steps(t.save_steps, max_steps)) + 1;
    if (t.save_strategy == SaveStrategy::epoch) kept = static_cast<std::int64_t>(t.num_train_epochs) + 1;
    if (t.save_total_limit) kept = std::min(kept, *t.save_total_limit + 1);
    const bool adapter = setup_.model->options().lora.has_value();
    const double result = adapter ? trained : weights;
    const double needed = result + static_cast<double>(kept) * (result + 2 * trained), there = free_disk(t.output_dir);
    if (there > 0 && needed > there)
      add(ErrorKind::disk,
          {.cause = fmt::format("about {:.0f} MB will be written, {:.0f} MB are free", needed / kMb, there / kMb),
           .place = t.output_dir,
           .remedy = "set save_total_limit, or another output_dir"});
  }

  const Arguments& args_;
  ResolvedConfig config_;
  std::vector<Error> problems_;
  Json checked_ = Json::object();
  std::unique_ptr<Ctx> ctx_;
  std::unique_ptr<TextFolder> text_;
  ModelSetup setup_;
  Dataset train_, evaluation_;
};

}  // namespace

/// `qtrain validate`: everything that can be checked without training; all problems, not the first.
int run_validate(const Arguments& args) {
  const auto problems = config_problems(args.operand(0), args.overrides());
  Validation validation(args, problems.empty() ? load_config(args.operand(0), args.overrides()) : ResolvedConfig{});
  for (const ErrorText& e : problems) validation.add(ErrorKind::usage, e);
  if (problems.empty()) validation.run();
  return validation.report();
}

}  // namespace qtrain
