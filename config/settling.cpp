#include "config/settling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/keys.h"
#include "config/launchers.h"
#include "core/os/file.h"
#include "text/template/load.h"

namespace qtrain {
namespace {

// axolotl

/// Converts events per epoch into a share of all updates and sets the strategy to steps.
void settle_events(Draft& draft, const std::string& event) {
  const std::string steps_key = event + "_steps";
  const Setting* per_epoch = draft.find("~" + event + "s_per_epoch");
  if (const auto n = draft.positive("~" + event + "s_per_epoch")) {
    const Setting* steps = draft.find(steps_key);
    if (steps && !steps->value.is_null() && steps->overrides() == per_epoch->overrides())
      draft.problem(*per_epoch, fmt::format(" and \"{}\" are both given", steps->written), "keep one of them");
    const double share = 1 / (*n * draft.positive("num_train_epochs").value_or(1));
    if (share < 1) draft.offer(steps_key, per_epoch->with(share));
  }
  if (draft.positive(steps_key)) draft.offer(event + "_strategy", draft.find(steps_key)->with("steps"));
}

void settle_batch(Draft& draft) {
  const Setting* total = draft.find("~batch_size");
  if (!total || total->value.is_null()) return;
  const auto rows = draft.positive("~batch_size");
  const double micro = draft.positive("per_device_train_batch_size").value_or(1);
  if (draft.find("gradient_accumulation_steps"))
    return draft.problem(*total, " and \"gradient_accumulation_steps\" are both given", "keep one of them");
  const double windows = rows.value_or(0) / micro;
  if (windows < 1 || windows != std::floor(windows))
    return draft.problem(
        *total, fmt::format(" is {}, which is not a multiple of micro_batch_size, {}", show(total->value), micro),
        "give gradient_accumulation_steps");
  draft.offer("gradient_accumulation_steps", total->with(static_cast<std::int64_t>(windows)));
}

/// Adds all linear layers to those that lora_target_modules names.
void settle_targets(Draft& draft) {
  const Setting* linear = draft.find("~lora_target_linear");
  if (!linear || linear->value != true) return;
  const Setting* named = draft.find("lora_target_modules");
  Json targets = named ? named->value : Json::array();
  if (targets.is_string()) targets = Json::array({targets});
  if (!targets.is_array()) return;  // reported as an error of lora_target_modules
  targets.push_back("all-linear");
  const std::string written = named ? fmt::format("{} and {}", named->written, linear->written) : linear->written;
  draft.settings["lora_target_modules"] = {written, linear->place, std::move(targets)};
}

void settle_axolotl(Draft& draft) {
  settle_events(draft, "eval");
  settle_events(draft, "save");
  settle_batch(draft);
  settle_targets(draft);
}

// LLaMA-Factory: the data set registry and related keys.

/// Whether a data set gives a non-empty name.
bool names_one(const Json& given, std::string_view key) {
  const auto at = given.find(key);
  return at != given.end() && at->is_string() && *at != "";
}

/// Adds the names that a data set gives for a part of `registry`, except those that rows may have anyway.
void add_names(Json& names, const Json& given, const char* part) {
  for (const auto& [key, known] : dialect_table("llamafactory").object("registry").at(part).items()) {
    const Json usual = known.is_array() ? known : Json::array({known});  // ours first
    if (names_one(given, key) && std::ranges::find(usual, given.at(key)) == usual.end())
      names[usual[0].get<std::string>()] = given.at(key);
  }
}

/// Reads an entry of dataset_info.json: its file, or a source of dataset_mixture if its columns are renamed. None if
/// the entry is invalid.
std::optional<Json> registered_source(Draft& draft, const std::filesystem::path& registry, const Json& entry,
                                      const std::string& name) {
  if (!entry.is_object() || !entry.contains("file_name") || !entry["file_name"].is_string()) {
    draft.diagnostics.problem(registry.string(), fmt::format("\"{}\": no file_name", name),
                              "data sets are local files: give a file_name");
    return std::nullopt;
  }
  for (const auto& [member, why] : dialect_table("llamafactory").object("registry").at("refused").items())
    if (const auto it = entry.find(member); it != entry.end() && *it != Json(nullptr) && *it != false && *it != "train")
      draft.diagnostics.problem(registry.string(), fmt::format("\"{}\": {} {}", name, member, show(*it)), why);
  for (const auto& [column, why] : dialect_table("llamafactory").object("registry").at("refused_columns").items())
    if (names_one(entry.value("columns", Json::object()), column))
      draft.diagnostics.problem(registry.string(), fmt::format("\"{}\": the column {}", name, column), why);
  const std::string file = (registry.parent_path() / entry["file_name"].get<std::string>()).string();
  const Json columns = entry.value("columns", Json::object()), tags = entry.value("tags", Json::object());
  const bool texts = names_one(columns, "prompt") && !names_one(columns, "response") && !names_one(columns, "messages");
  Json source{{"path", file}};
  add_names(source["column_mapping"], columns, texts ? "texts" : "alpaca");
  add_names(source["column_mapping"], columns, "columns");
  add_names(source["message_property_mappings"], tags, "message");
  add_names(source["role_mapping"], tags, "roles");
  for (const char* map : {"column_mapping", "message_property_mappings", "role_mapping"})
    if (source[map].empty()) source.erase(map);
  const bool asks = names_one(columns, "response") && !names_one(columns, "query");
  if (asks ||
      (names_one(columns, "messages") && !names_one(columns, "prompt"))) {  // if columns are named, no others count
    source["columns"] = Json::array({"chat_template_kwargs"});
    for (const auto& [ours, theirs] : columns.items())
      if (names_one(columns, ours)) source["columns"].push_back(theirs);
  }
  return source.size() == 1 ? Json(file) : source;
}

/// The files of an evaluation source, which cannot rename columns.
Json evaluation_source(Draft& draft, const Setting& names, const Json& source) {
  for (const char* map : {"column_mapping", "message_property_mappings", "role_mapping"})
    if (source.is_object() && source.contains(map)) {
      draft.diagnostics.problem(names.place, "columns of evaluation rows cannot be renamed here",
                                "rename the fields in the file");
      return source;
    }
  if (source.is_string()) return source;
  draft.diagnostics.note(names.place, "evaluation rows use all columns that the program knows");
  return source.at("path");
}

/// Resolves names of data sets to files.
void settle_datasets(Draft& draft, const char* pending_key, const char* key) {
  const Setting* names = draft.find(pending_key);
  if (!names || !names->value.is_array()) return;
  const bool evaluates = std::string_view(key) != "dataset_name";
  const Setting* dir = draft.find("~dataset_dir");
  const std::string folder = dir && dir->value.is_string() ? dir->value.get<std::string>() : "data";
  Json registry = Json::object();
  const auto file = draft.named_file(folder + "/dataset_info.json");
  if (file) registry = read_config_document(*file).value;
  Json files = Json::array();
  for (const Json& name : names->value) {
    const std::string text = name.is_string() ? name.get<std::string>() : show(name);
    const auto entry = registry.is_object() ? registry.find(text) : registry.end();
    if (!registry.is_object() || entry == registry.end())
      files.push_back(text);
    else if (const auto found = registered_source(draft, *file, *entry, text))
      files.push_back(evaluates ? evaluation_source(draft, *names, *found) : *found);
  }
  const bool mixture = std::any_of(files.begin(), files.end(), [](const Json& source) { return source.is_object(); });
  if (mixture && evaluates) return;
  draft.offer(mixture ? "dataset_mixture" : key, names->with(files));
}

/// With packing, LLaMA-Factory reserves one token of cutoff_len for padding.
void settle_packed_length(Draft& draft, const DialectTable& dialect) {
  const Setting *packing = draft.find("packing"), *length = draft.find("max_length");
  if (!packing || packing->value != true || (length && length->written != "cutoff_len")) return;
  const Json max_length = length ? length->value : dialect.object("defaults").at("max_length");
  if (!max_length.is_number_integer() || max_length <= 1) return;  // reported elsewhere, or nothing to subtract
  const std::int64_t kept = max_length.get<std::int64_t>() - 1;
  draft.note(
      *packing,
      fmt::format(": rows have at most {} tokens, because LLaMA-Factory reserves one of cutoff_len for padding", kept));
  draft.settings["max_length"] = (length ? *length : *packing).with(kept);
}

/// pissa_init says whether, and pissa_iter how: 16 iterations unless it is given, -1 for an exact decomposition.
void settle_pissa(Draft& draft) {
  const Setting *pissa = draft.find("~pissa_init"), *iterations = draft.find("~pissa_iter");
  const Json count = iterations ? iterations->value : Json(16);
  if (iterations && (!count.is_number_integer() || count < -1))
    draft.problem(*iterations, fmt::format(" is {}", show(count)), "give a number of iterations, or -1");
  if (!pissa || pissa->value.is_null() || pissa->value == false) return;
  if (pissa->value != true)
    return draft.problem(*pissa, fmt::format(": expected true or false, got {}", show(pissa->value)));
  const bool is_exact = count == -1;
  draft.offer("init_lora_weights", pissa->with(is_exact ? "pissa" : fmt::format("pissa_niter_{}", show(count))));
}

void settle_llamafactory(Draft& draft, const DialectTable& dialect) {
  settle_pissa(draft);
  settle_packed_length(draft, dialect);
  settle_datasets(draft, "~dataset", "dataset_name");
  settle_datasets(draft, "~eval_dataset", "eval_dataset_name");
  if (const Setting* rank = draft.find("lora_r"); rank && rank->value.is_number())
    draft.offer("lora_alpha", {fmt::format("2 x {}", rank->written), rank->place, 2 * rank->value.get<double>()});
  const Setting *names = draft.find("~dataset"), *limit = draft.find("max_samples");
  if (names && limit && names->value.is_array() && names->value.size() > 1)
    draft.note(*limit, " applies to all data sets together");
  if (const Setting* stage = draft.find("~stage")) {
    draft.offer("packing", stage->with(true));
    draft.offer("packing_strategy", stage->with("blocks"));
  }
}

// Every dialect

std::filesystem::path tokenizer_folder(const Draft& draft) {
  for (const char* key : {"tokenizer_name_or_path", "model_name_or_path"})
    if (const Setting* s = draft.find(key); s && s->value.is_string()) return s->value.get<std::string>();
  return {};
}

/// The program's own format of that name, "" if there is none.
std::string format_called(const DialectTable& dialect, const Setting& named) {
  const std::string name = named.value.get<std::string>();
  const std::string format = dialect.object("formats").value(name, "");
  if (!format.empty()) return format;
  const KeyRow* row = dialect.find(dialect.name == "axolotl" ? "chat_template" : "template");
  const Json* mapped = row ? row->meaning(named.value) : nullptr;
  return mapped && mapped->is_string() ? mapped->get<std::string>() : "";
}

/// If the file and the command line both name a format, the command line wins.
void settle_later_format(Draft& draft) {
  const Setting *named = draft.find("~chat_format"), *path = draft.find("chat_template_path");
  if (!named || !path) return;
  const bool of_sources = named->written == "datasets" || path->written == "datasets";
  if (of_sources && named->overrides() == path->overrides())
    draft.problem(*named, fmt::format(" and \"{}\" name two chat templates, but a run has only one", path->written),
                  "keep one of them");
  draft.settings.erase(named->overrides() && !path->overrides() ? "chat_template_path" : "~chat_format");
}

/// Uses the named format if the model's folder has no chat template, in which case rows would be plain text.
void settle_format(Draft& draft, const DialectTable& dialect) {
  const Setting* named = draft.find("~chat_format");
  if (!named || draft.find("chat_template_path")) return;
  const std::filesystem::path folder = tokenizer_folder(draft);
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored) || has_chat_template(folder))
    return draft.note(*named, fmt::format(": {}: the chat template of the model's folder is used", show(named->value)));
  const std::string format = format_called(dialect, *named);
  if (format.empty() && !draft.find("~stage"))
    return draft.problem(*named,
                         fmt::format(": {}: the model's folder has no chat template, and the program does not have "
                                     "this format",
                                     show(named->value)),
                         "put a chat_template.jinja into the model's folder, or name a file or another format with "
                         "chat_template_path");
  if (format.empty()) return;
  draft.note(*named, fmt::format(": {}: using the built-in format of that name", show(named->value)));
  draft.offer("chat_template_path", named->with(format));
}

/// Rows of type alpaca get their own prompt format if the model's folder has no chat template.
void settle_alpaca(Draft& draft) {
  const Setting* prompts = draft.find("~alpaca_prompts");
  const std::filesystem::path folder = tokenizer_folder(draft);
  std::error_code ignored;
  if (!prompts || draft.find("chat_template_path") || draft.find("~chat_format")) return;
  if (!std::filesystem::is_directory(folder, ignored) || has_chat_template(folder)) return;
  draft.note(*prompts,
             ": the model has no chat template: rows of type alpaca become prompts with ### Instruction headings");
  draft.settings["dataset_mixture"] = *prompts;
  draft.settings.erase("dataset_name");
}

/// Formats of LLaMA-Factory bring their own end token, for rows and for generation.
void settle_end_token(Draft& draft, const DialectTable& dialect) {
  constexpr std::string_view kPrefix = "llamafactory_";
  const Setting* named = draft.find("~chat_format");
  if (!named) named = draft.find("chat_template_path");
  if (!named || named->written != "template" || !named->value.is_string()) return;
  std::string name = named->value.get<std::string>();
  if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
  const std::string token = dialect.object("end_tokens").value(name, "");
  if (name == "llama3" && draft.find("~stage")) return;  // plain texts end with <|end_of_text|>, as its models have it
  const auto file = draft.named_file((tokenizer_folder(draft) / "tokenizer.json").string());
  if (token.empty() || !file) return;
  if (read_text(*file, std::uint64_t{1} << 30).find(dump_json(token)) == std::string::npos)
    return draft.note(*named, fmt::format(": the tokenizer has no {}, which LLaMA-Factory would add: its own end token "
                                          "is kept",
                                          token));
  draft.offer("eos_token", named->with(token));
}

/// Recomputation in attention only, which recomputation of whole blocks includes. The command line takes precedence.
void settle_checkpointing(Draft& draft) {
  const Setting* attention = draft.find("~attention_checkpointing");
  const Setting* blocks = draft.find("gradient_checkpointing");
  if (attention == nullptr) return;
  const bool later = blocks && attention->overrides() && !blocks->overrides();
  if (blocks && !later && (blocks->value == true || blocks->overrides())) return;
  if (later)
    draft.note(*blocks, fmt::format(" {} has no effect: \"{}\" is given on the command line", show(blocks->value),
                                    attention->written));
  draft.settings["gradient_checkpointing"] = *attention;
}

/// Translates axolotl's and DeepSpeed's minimum of the cosine schedule (cosine_min_lr_ratio).
void settle_floor(Draft& draft) {
  const Setting *floor = draft.find("~cosine_min_lr_ratio"), *schedule = draft.find("lr_scheduler_type");
  if (!draft.positive("~cosine_min_lr_ratio") || (schedule && schedule->value != "cosine")) return;
  draft.settings["lr_scheduler_type"] = floor->with("cosine_with_min_lr");
  draft.offer("lr_scheduler_kwargs", floor->with({{"min_lr_rate", floor->value}}));
}

/// accelerate shards over dp_shard_size x cp_size ranks.
void settle_groups(Draft& draft) {
  const Setting* shards = draft.find("~dp_shard_size");
  const auto size = draft.positive("~dp_shard_size");
  if (!size || draft.find("zero_group_size")) return;
  const double sharing = draft.positive("context_parallel_size").value_or(1);
  draft.offer("zero_group_size", shards->with(static_cast<std::int64_t>(*size * sharing)));
}

/// As in TRL, evaluation rows come from another split of the training data if none are named.
void settle_splits(Draft& draft) {
  const Setting *split = draft.find("dataset_test_split"), *evaluates = draft.find("eval_strategy"),
                *files = draft.find("dataset_name");
  const bool asked = evaluates && !evaluates->value.is_null() && evaluates->value != "no" && evaluates->value != false;
  if (split && !split->value.is_null() && files && asked && !draft.find("eval_split"))
    draft.offer("eval_dataset_name", split->with(files->value));
}

}  // namespace

void settle_pending(Draft& draft, const DialectTable& dialect, const ConfigDocument& document) {
  settle_later_format(draft);
  settle_format(draft, dialect);
  settle_alpaca(draft);
  settle_end_token(draft, dialect);
  if (dialect.name == "axolotl") settle_axolotl(draft);
  if (dialect.name == "llamafactory") settle_llamafactory(draft, dialect);
  settle_splits(draft);
  settle_checkpointing(draft);
  add_launcher_settings(draft, document);
  settle_floor(draft);
  settle_groups(draft);
  std::erase_if(draft.settings, [](const auto& setting) { return setting.first.front() == kPending; });
}

}  // namespace qtrain
