#include "config/dialect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "config/keys.h"
#include "text/template/chat_template.h"

namespace qtrain {
namespace {

bool evaluates(const ResolvedConfig& c) {
  return !c.value.data.eval_dataset_name.empty() || c.value.data.eval_split > 0;
}

/// What manifests say of their base model beside its name.
constexpr InertKey kExpertInert[] = {
    {"rope_scaling", false, "[]", "the model's config.json says how positions are scaled"}};

/// Manifests say how to evaluate also where there are no evaluation rows.
void leave_out_evaluation(ResolvedConfig& c) {
  auto& t = c.value.training;
  if (t.eval_strategy == EvalStrategy::no && !t.load_best_model_at_end) return;
  c.notes.push_back(
      fmt::format("{}: there are no evaluation rows (validation_path), so nothing is evaluated and the last "
                  "weights are the result",
                  c.origin.at(c.given("eval_strategy") ? "eval_strategy" : "load_best_model_at_end")));
  t.eval_strategy = EvalStrategy::no;
  t.load_best_model_at_end = false;
}

/// The expert trainer evaluates and keeps the best epoch as soon as it has evaluation rows.
void complete_expert(ResolvedConfig& c) {
  auto& t = c.value.training;
  if (!c.given("per_device_eval_batch_size")) t.per_device_eval_batch_size = t.per_device_train_batch_size;
  if (!evaluates(c)) return leave_out_evaluation(c);
  if (!c.given("eval_strategy")) t.eval_strategy = EvalStrategy::epoch;
  const bool same = name_of_enum(t.eval_strategy) == name_of_enum(t.save_strategy);
  if (!c.given("load_best_model_at_end") && same && t.eval_strategy == EvalStrategy::epoch)
    t.load_best_model_at_end = true;
}

/// ModelForge evaluates every eval_steps as soon as it has evaluation rows.
void complete_modelforge(ResolvedConfig& c) {
  auto& t = c.value.training;
  if (!c.value.data.eval_dataset_name.empty() && !c.given("eval_split")) c.value.data.eval_split = 0;
  if (evaluates(c) && !c.given("eval_strategy")) t.eval_strategy = EvalStrategy::steps;
}

Dialect hf() {
  return {.name = "hf",
          .about =
              "names and defaults of SFTConfig and ModelConfig (TRL), TrainingArguments (transformers) and, where its "
              "names are used, LoraConfig (PEFT)",
          .sure = {},
          .usual = {},
          .ignored = {},
          .defaults = {}};
}

Dialect expert() {
  return {
      .name = "expert",
      .about = "expert manifests, with the training keys under training.config or at the top",
      .sure = {"training", "batch_size", "epochs", "rank", "alpha", "adapter_type", "base_model_name", "lr_scheduler"},
      .usual = {"base_model", "use_tf32", "use_sdpa", "pretokenized_cache", "use_unsloth", "use_cuda_graphs",
                "quantization", "dataset_path"},
      .ignored = {"name", "version", "schema_version", "description", "author", "homepage", "repository", "adapters",
                  "capabilities", "limitations", "quality_metrics", "routing", "constraints", "perf", "runtime",
                  "evaluation", "integrity", "license", "tags"},
      .defaults = {{"use_peft", "true"},
                   {"lora_r", "8"},
                   {"lora_alpha", "8"},
                   {"lora_dropout", "0.1"},
                   {"max_length", "2048"},
                   {"learning_rate", "5e-5"},
                   {"optim", "\"adamw_torch\""},
                   {"bf16", "false"},
                   {"gradient_checkpointing", "false"},
                   {"save_strategy", "\"epoch\""},
                   {"save_total_limit", "3"}},
      .inert = kExpertInert,
      .complete = complete_expert};
}

Dialect modelforge() {
  return {.name = "modelforge",
          .about = "the flat JSON of ModelForge",
          .sure = {"use_4bit", "use_8bit", "use_nested_quant", "compute_specs", "strategy"},
          .usual = {"provider", "model_name", "dataset", "task", "eval_split"},
          .ignored = {},
          .defaults = {{"use_peft", "true"},
                       {"lora_r", "16"},
                       {"lora_alpha", "32"},
                       {"lora_dropout", "0.1"},
                       {"lora_target_modules", "\"all-linear\""},
                       {"load_in_4bit", "true"},
                       {"bnb_4bit_compute_dtype", "\"float16\""},
                       {"bf16", "false"},
                       {"num_train_epochs", "1"},
                       {"per_device_train_batch_size", "1"},
                       {"per_device_eval_batch_size", "1"},
                       {"gradient_accumulation_steps", "4"},
                       {"max_grad_norm", "0.3"},
                       {"learning_rate", "2e-4"},
                       {"weight_decay", "0.001"},
                       {"optim", "\"paged_adamw_32bit\""},
                       {"lr_scheduler_type", "\"cosine\""},
                       {"warmup_ratio", "0.03"},
                       {"train_sampling_strategy", "\"group_by_length\""},
                       {"max_length", "2048"},
                       {"eval_split", "0.2"},
                       {"eval_steps", "100"},
                       {"logging_steps", "25"}},
          .complete = complete_modelforge};
}

const std::vector<Dialect>& table() {
  static const std::vector<Dialect> kTable{hf(), expert(), modelforge(), llamafactory_dialect(), axolotl_dialect()};
  return kTable;
}

constexpr std::string_view kTransparent[] = {"peft_config",   "lora_config",        "quantization_config",
                                             "bnb_config",    "bnb_config_kwargs",  "model_init_kwargs",
                                             "training_args", "training_arguments", "sft_config",
                                             "model_args",    "script_args",        "data_args"};

std::vector<std::string_view> keys_in(const Json& document, const std::vector<std::string_view>& keys) {
  std::vector<std::string_view> found;
  for (const auto key : keys)
    if (document.contains(std::string(key))) found.push_back(key);
  return found;
}

/// A dialect, and the keys of a document that decide for it.
struct DialectClaim {
  const Dialect* dialect;
  std::vector<std::string_view> keys;
};

/// Members of a manifest's `training` and `dataset` that tell of what has been.
const std::vector<std::string_view> kOfTraining{
    "decoding",   "metadata",           "packaging_checkpoint",   "checkpoint",
    "trained_on", "base_model_version", "alternative_checkpoints"};
const std::vector<std::string_view> kOfDataset{"generation",        "type",          "format",  "source",
                                               "sources",           "preprocessing", "splits",  "statistics",
                                               "task_distribution", "description",   "license", "format_distribution",
                                               "total_examples"};

constexpr std::string_view kOfManifest = "it describes the result: nothing is trained by it",
                           kOfPast = "it tells of a training that has been: nothing is trained by it",
                           kOfRows = "it describes the rows, which are read as they are";

bool lists(const std::vector<std::string_view>& keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

/// Usual keys of a dialect that mean nothing in the others; two decide as one sure key does.
std::vector<std::string_view> usual_only_in(const Dialect& dialect, const Json& document) {
  auto keys = keys_in(document, dialect.usual);
  std::erase_if(keys, [&](std::string_view key) {
    return std::any_of(table().begin(), table().end(), [&](const Dialect& other) {
      return other.name != dialect.name && (lists(other.sure, key) || lists(other.usual, key));
    });
  });
  return keys;
}

std::vector<DialectClaim> claims_on(const Json& document) {
  std::vector<DialectClaim> claims;
  for (const Dialect& d : table()) {
    auto keys = keys_in(document, d.sure), usual = usual_only_in(d, document);
    if (keys.empty() && usual.size() >= 2 && !document.contains("model_name_or_path")) keys = std::move(usual);
    if (!keys.empty()) claims.push_back({&d, std::move(keys)});
  }
  return claims;
}

/// Whether all keys of a claim are usual in another dialect with a claim, too: `lr_scheduler` says nothing beside
/// `sample_packing`.
bool is_shared(const DialectClaim& claim, const std::vector<DialectClaim>& all) {
  return std::any_of(all.begin(), all.end(), [&](const DialectClaim& other) {
    return other.dialect != claim.dialect && std::all_of(claim.keys.begin(), claim.keys.end(),
                                                         [&](auto key) { return lists(other.dialect->usual, key); });
  });
}

std::vector<std::string_view> dialect_names() {
  std::vector<std::string_view> names;
  for (const Dialect& d : table()) names.push_back(d.name);
  return names;
}

/// Undoes nesting. Each function reads one object of a manifest; `path` ends in a dot or is empty.
struct Flattener {
  const Dialect& dialect;
  const std::function<void(const std::string&, std::string)>& problem;
  std::vector<RawSetting> out = {};

  void add(std::string_view key, const std::string& path, const Json& value) {
    out.push_back({std::string(key), path, value});
  }

  void describe(const std::string& path, const Json& value, std::string_view what) {
    if (!value.is_null()) out.push_back({{}, path, value, what});
  }

  void members(const Json& object, const std::string& path) {
    for (const auto& [key, value] : object.items()) member(key, path + key, value);
  }

  void member(const std::string& key, const std::string& path, const Json& value) {
    const bool transparent = std::find(std::begin(kTransparent), std::end(kTransparent), key) != std::end(kTransparent);
    if (transparent && value.is_null()) return;
    if (transparent && value.is_object()) {
      if (key == "peft_config" || key == "lora_config") add("use_peft", path, true);
      return members(value, path + ".");
    }
    if (key == "base_model") return base_model(path, value);
    if (key == "base_models") return base_models(path, value);
    if (dialect.name == "expert" && value.is_object()) {
      if (key == "training") return training(path + ".", value);
      if (key == "dataset") return dataset(path + ".", value);
      if (key == "config") return members(value, path + ".");
    }
    if (key == "soft_prompts") {
      if (!value.empty()) problem(path, "soft prompts are not available");
      return;
    }
    add(key, path, value);
  }

  void training(const std::string& path, const Json& object) {
    for (const auto& [key, value] : object.items())
      lists(kOfTraining, key) ? describe(path + key, value, kOfPast) : member(key, path + key, value);
  }

  void base_model(const std::string& path, const Json& value) {
    if (!value.is_object()) return add("model_name_or_path", path, value);
    if (const auto it = value.find("name"); it != value.end()) add("model_name_or_path", path + ".name", *it);
    for (const char* key : {"quantization", "prompt_template", "rope_scaling"})
      if (const auto it = value.find(key); it != value.end()) add(key, fmt::format("{}.{}", path, key), *it);
  }

  void base_models(const std::string& path, const Json& value) {
    if (!value.is_array() || value.empty()) return problem(path, "expected a list of models");
    if (value.size() > 1)
      return problem(path, "several base models: keep one, or give model_name_or_path a value and remove them");
    base_model(path, value[0]);
  }

  void dataset(const std::string& path, const Json& object) {
    static const std::vector<std::string_view> kRead{
        "validation_path", "test_path", "text_field", "streaming", "max_in_memory_samples", "use_pretokenized"};
    for (const auto& [key, value] : object.items()) {
      if (key == "path")
        add("dataset_name", path + key, value);
      else if (key == "field_mapping")
        field_mapping(path + key, value);
      else if (key == "tasks" && !value.is_null())
        problem(path + key, "multi-task datasets are not available");
      else if (lists(kRead, key))
        add(key, path + key, value);
      else if (lists(kOfDataset, key))
        describe(path + key, value, kOfRows);
      else if (key != "tasks")
        problem(path + key, fmt::format("unknown key \"{}\"", key));
    }
  }

  void field_mapping(const std::string& path, const Json& value) {
    if (value.is_null()) return;
    if (!value.is_object()) return problem(path, "expected an object");
    for (const auto& [key, field] : value.items()) {
      const bool response = key == "response" && field == "output";  // what the alpaca shape calls it
      const std::string place = fmt::format("{}.{}", path, key);
      if (key == "text")
        add("dataset_text_field", place, field);
      else if (!field.is_null() && field != key && !response)
        problem(place, fmt::format("field mapping of {} is not available: rename the field in the rows", key));
    }
  }
};

}  // namespace

void tell_answers_apart(ResolvedConfig& config) {
  const ModelSection& m = config.value.model;
  DataSection& d = config.value.data;
  if (config.given("assistant_only_loss") || !d.assistant_only_loss) return;
  if (!d.response_template.empty()) d.assistant_only_loss = false;
  const std::filesystem::path folder = m.tokenizer_name_or_path.value_or(m.model_name_or_path);
  std::error_code ignored;
  if (m.chat_template_path || !std::filesystem::is_directory(folder, ignored) || ChatTemplate::exists(folder)) return;
  d.assistant_only_loss = false;
  config.notes.push_back("the model's folder has no chat template: rows become plain text, the loss is on completions");
}

std::span<const Dialect> dialects() {
  return table();
}
std::span<const std::string_view> transparent_objects() {
  return kTransparent;
}

const Dialect& dialect_named(std::string_view name) {
  for (const Dialect& d : table())
    if (d.name == name) return d;
  fail(ErrorKind::usage, {.cause = fmt::format("there is no config dialect \"{}\"", name),
                          .place = "dialect",
                          .remedy = fmt::format("choose one of {}", fmt::join(dialect_names(), ", "))});
}

const Dialect& detect_dialect(const Json& document, std::string_view name) {
  if (const auto it = document.find("dialect"); it != document.end() && it->is_string())
    return dialect_named(it->get<std::string>());
  const std::vector<DialectClaim> all = claims_on(document);
  std::vector<DialectClaim> claims;
  for (const DialectClaim& c : all)
    if (!is_shared(c, all)) claims.push_back(c);
  if (claims.size() > 1)
    fail(ErrorKind::usage,
         {.cause = fmt::format("\"{}\" is a key of the dialect {} and \"{}\" one of {}; their defaults differ",
                               claims[0].keys[0], claims[0].dialect->name, claims[1].keys[0], claims[1].dialect->name),
          .place = std::string(name),
          .remedy = fmt::format("use the names of one dialect, or say which with \"dialect\": one of {}",
                                fmt::join(dialect_names(), ", "))});
  if (!claims.empty()) return *claims[0].dialect;
  if (!document.contains("model_name_or_path"))
    for (const Dialect& d : table())
      if (keys_in(document, d.usual).size() >= 2) return d;
  return table()[0];
}

std::vector<RawSetting> flatten(const Dialect& dialect, const Json& document,
                                const std::function<void(const std::string&, std::string)>& problem) {
  Flattener f{dialect, problem};
  for (const auto& [key, value] : document.items()) {
    const bool ignored = std::find(dialect.ignored.begin(), dialect.ignored.end(), key) != dialect.ignored.end();
    if (ignored)
      f.describe(key, value, kOfManifest);
    else if (key != "dialect" && key != "$schema")
      f.member(key, key, value);
  }
  return std::move(f.out);
}

}  // namespace qtrain
