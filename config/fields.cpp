#include "config/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "config/dialect_table.h"
#include "config/keys.h"
#include "model/recompute.h"

namespace qtrain {
namespace {

template <class T>
constexpr bool is_optional = false;
template <class T>
constexpr bool is_optional<std::optional<T>> = true;
template <class T>
constexpr bool is_number = std::is_same_v<T, std::int64_t> || std::is_same_v<T, double>;
template <class T>
constexpr bool is_word = std::is_enum_v<T> && !std::is_same_v<T, CopyChoice>;

/// Names of an enumeration. Schedules have theirs in optim, where some are not offered: those have an error of their
/// own.
template <class E>
std::span<const std::string_view> names_of() {
  if constexpr (std::is_same_v<E, ScheduleKind>)
    return schedule_names();
  else
    return kNamesOf<E>;
}

/// What values of a type are called in messages.
template <class T>
std::string type_of(const Field& f) {
  if constexpr (is_optional<T>) return type_of<typename T::value_type>(f) + " or null";
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, std::int64_t>) return "an integer";
  if constexpr (std::is_same_v<T, double>) return "a number";
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return "a string or a list of strings";
  if constexpr (std::is_same_v<T, Json>) return "an object";
  if constexpr (std::is_same_v<T, std::vector<Json>>) return "a list";
  if constexpr (std::is_same_v<T, Recompute>) return R"(true, false, "selective", "blocks:N" or "auto")";
  if constexpr (std::is_same_v<T, CopyChoice>) return R"(true, false or "auto")";
  if (f.name == "optim") return fmt::format("one of {}", optimizer_summary());
  return f.words.empty() ? "a string" : fmt::format("one of {}", fmt::join(f.words, ", "));
}

// Reading a JSON value: false where it is of another type.

bool read(const Json& j, bool& out) {
  if (j.is_boolean()) out = j.get<bool>();
  return j.is_boolean();
}
bool read(const Json& j, double& out) {
  if (j.is_number()) out = j.get<double>();
  return j.is_number();
}
bool read(const Json& j, std::int64_t& out) {
  double d = 0;
  if (!read(j, d) || d != std::floor(d) || std::abs(d) > 0x1p62) return false;
  out = j.is_number_float() ? static_cast<std::int64_t>(d) : j.get<std::int64_t>();
  return true;
}
bool read(const Json& j, std::string& out) {
  if (j.is_string()) out = j.get<std::string>();
  return j.is_string();
}
bool read(const Json& j, std::vector<std::string>& out) {
  const Json list = j.is_string() ? Json::array({j}) : j;
  if (!list.is_array() || !std::ranges::all_of(list, [](const Json& e) { return e.is_string(); })) return false;
  out = list.get<std::vector<std::string>>();
  return true;
}
bool read(const Json& j, Json& out) {
  if (j.is_object()) out = j;
  return j.is_object();
}
bool read(const Json& j, std::vector<Json>& out) {
  if (j.is_array()) out = {j.begin(), j.end()};
  return j.is_array();
}
bool read(const Json& j, Recompute& out) {
  if (j.is_boolean()) out.policy = j.get<bool>() ? "block" : "none";
  if (!j.is_string()) return j.is_boolean();
  const auto name = j.get<std::string>();
  if (name != "full" && name != Recompute::kAuto && !RecomputePolicy::parse(name)) return false;
  out.policy = name == "full" ? "block" : name;
  return true;
}
bool read(const Json& j, CopyChoice& out) {
  if (j.is_boolean()) out = j.get<bool>() ? CopyChoice::always : CopyChoice::never;
  if (j == "auto") out = CopyChoice::automatic;
  return j.is_boolean() || j == "auto";
}
template <class E>
requires is_word<E>
bool read(const Json& j, E& out) {
  const auto names = names_of<E>();
  const auto at = j.is_string() ? std::ranges::find(names, j.get_ref<const std::string&>()) : names.end();
  if (at != names.end()) out = static_cast<E>(at - names.begin());
  return at != names.end();
}
template <class T>
bool read(const Json& j, std::optional<T>& out) {
  if (j.is_null()) return out.reset(), true;
  return read(j, out ? *out : out.emplace());
}

template <class T>
Json json_of(const T& v) {
  if constexpr (is_optional<T>)
    return v ? json_of(*v) : Json(nullptr);
  else if constexpr (is_word<T>)
    return names_of<T>()[static_cast<std::size_t>(v)];
  else if constexpr (std::is_same_v<T, Recompute>)
    return v.policy == "none" || v.policy == "block" ? Json(v.policy == "block") : Json(v.policy);
  else if constexpr (std::is_same_v<T, CopyChoice>)
    return v == CopyChoice::automatic ? Json("auto") : Json(v == CopyChoice::always);
  else
    return v;
}

/// Whether a value of the right type is one that the field takes.
template <class T>
std::string problem_of(const Field& f, const T& value, const Json& written) {
  if constexpr (is_optional<T>) {
    return value ? problem_of(f, *value, written) : "";
  } else {
    if constexpr (is_number<T>)
      if (!f.range.contains(static_cast<double>(value)))
        return fmt::format("must be {}, got {}", f.range.text(), show(written));
    if constexpr (std::is_same_v<T, std::string>)
      if (!f.words.empty() && std::ranges::find(f.words, value) == f.words.end())
        return fmt::format("expected {}, got {}", f.type, show(written));
    return {};
  }
}

template <class T>
std::string store(const Field& f, T& member, const Json& j) {
  T value = member;
  if (!read(j, value)) return fmt::format("expected {}, got {}", f.type, show(j));
  std::string problem = problem_of(f, value, j);
  if (problem.empty()) member = std::move(value);
  return problem;
}

Range range_of(const Json& row) {
  static const std::map<std::string, Range> kRanges{{"count", {.low = 1, .high = 1 << 30}},
                                                    {"not_negative", {.low = 0}},
                                                    {"positive", {.low = 0, .low_open = true}},
                                                    {"share", {.low = 0, .high = 1, .high_open = true}}};
  if (!row.contains("range")) return {};
  const Json& range = row["range"];
  return range.is_array() ? Range{.low = range[0], .high = range[1]} : kRanges.at(range);
}

OnResume resume_of(const Json& row) {
  constexpr auto kKinds = std::to_array<std::string_view>({"refused", "rows", "saved", "update", "told", "silent"});
  const auto at = std::ranges::find(kKinds, row.at("resume").get_ref<const std::string&>());
  check(at != kKinds.end(), "a field has an unknown kind of resume");
  return static_cast<OnResume>(at - kKinds.begin());
}

/// The words of a string, in the table, or of an enumeration.
template <class T>
std::vector<std::string> words_of(const Json& row) {
  std::span<const std::string_view> words;
  if constexpr (is_optional<T>) return words_of<typename T::value_type>(row);
  if constexpr (is_word<T>) words = std::is_same_v<T, ScheduleKind> ? available_schedules() : names_of<T>();
  if (row.contains("words") && row["words"].is_array()) return row["words"].get<std::vector<std::string>>();
  if (row.contains("words")) words = optimizer_names();
  return {words.begin(), words.end()};
}

template <class T>
constexpr bool is_switch_type = std::is_same_v<T, bool> || std::is_same_v<T, std::optional<bool>> ||
                                std::is_same_v<T, Recompute> || std::is_same_v<T, CopyChoice>;

template <class S, class T>
struct Member {
  std::string_view name;
  T S::*at;
};

/// The fields whose members a section of Config has, in the order of their rows.
class FieldReader {
 public:
  template <class S, class... T>
  void read(std::string_view section, S Config::*part, Member<S, T>... members) {
    const Json& rows = table_data("fields").at(std::string(section));
    check(rows.size() == sizeof...(members), "fields.yaml has other keys than Config");
    const std::size_t begin = fields_.size();
    for (const auto& [name, row] : rows.items())
      fields_.push_back({.name = name,
                         .section = std::string(section),
                         .doc = row.at("doc"),
                         .resume = resume_of(row),
                         .range = range_of(row)});
    const std::span<Field> own = std::span(fields_).subspan(begin);
    (attach(*std::ranges::find(own, members.name, &Field::name), rows, part, members.at), ...);
  }
  std::vector<Field> take() { return std::move(fields_); }

 private:
  template <class S, class T>
  static void attach(Field& f, const Json& rows, S Config::*part, T S::*member) {
    f.words = words_of<T>(rows.at(f.name));
    f.type = type_of<T>(f);
    f.is_switch = is_switch_type<T>;
    f.takes_null = is_optional<T>;
    f.read = [=](const Config& c) { return json_of(c.*part.*member); };
    f.store = [=](const Field& field, Config& c, const Json& j) { return store(field, c.*part.*member, j); };
  }

  std::vector<Field> fields_;
};

std::vector<Field> read_fields() {
  FieldReader r;
  using M = ModelSection;
  using D = DataSection;
  using L = LoraSection;
  using Q = QuantSection;
  using T = TrainingSection;
  using R = RunSection;
  r.read("Model", &Config::model, Member{"model_name_or_path", &M::model_name_or_path},
         Member{"adapter_name_or_path", &M::adapter_name_or_path},
         Member{"tokenizer_name_or_path", &M::tokenizer_name_or_path}, Member{"dtype", &M::dtype},
         Member{"random_init", &M::random_init}, Member{"router_aux_loss_coef", &M::router_aux_loss_coef},
         Member{"output_router_logits", &M::output_router_logits},
         Member{"router_aux_loss_mode", &M::router_aux_loss_mode}, Member{"chat_template_path", &M::chat_template_path},
         Member{"template_date", &M::template_date}, Member{"eos_token", &M::eos_token},
         Member{"pad_token", &M::pad_token});
  r.read("Data", &Config::data, Member{"dataset_name", &D::dataset_name},
         Member{"eval_dataset_name", &D::eval_dataset_name}, Member{"eval_split", &D::eval_split},
         Member{"max_samples", &D::max_samples}, Member{"dataset_mixture", &D::dataset_mixture},
         Member{"mix_strategy", &D::mix_strategy}, Member{"column_mapping", &D::column_mapping},
         Member{"message_property_mappings", &D::message_property_mappings}, Member{"role_mapping", &D::role_mapping},
         Member{"dataset_text_field", &D::dataset_text_field}, Member{"max_length", &D::max_length},
         Member{"truncation_mode", &D::truncation_mode}, Member{"shuffle_dataset", &D::shuffle_dataset},
         Member{"packing", &D::packing}, Member{"packing_strategy", &D::packing_strategy},
         Member{"packing_scope", &D::packing_scope}, Member{"packing_isolate", &D::packing_isolate},
         Member{"eval_packing", &D::eval_packing}, Member{"completion_only_loss", &D::completion_only_loss},
         Member{"assistant_only_loss", &D::assistant_only_loss}, Member{"last_turn_only_loss", &D::last_turn_only_loss},
         Member{"skip_empty_answers", &D::skip_empty_answers}, Member{"response_template", &D::response_template},
         Member{"instruction_template", &D::instruction_template}, Member{"token_cache_dir", &D::token_cache_dir},
         Member{"token_cache_gb", &D::token_cache_gb});
  r.read("LoRA", &Config::lora, Member{"use_peft", &L::use_peft}, Member{"lora_r", &L::lora_r},
         Member{"lora_alpha", &L::lora_alpha}, Member{"lora_dropout", &L::lora_dropout},
         Member{"lora_target_modules", &L::lora_target_modules}, Member{"rank_pattern", &L::rank_pattern},
         Member{"alpha_pattern", &L::alpha_pattern}, Member{"use_rslora", &L::use_rslora},
         Member{"use_dora", &L::use_dora}, Member{"lora_modules_to_save", &L::lora_modules_to_save},
         Member{"ensure_weight_tying", &L::ensure_weight_tying}, Member{"loraplus_lr_ratio", &L::loraplus_lr_ratio},
         Member{"loraplus_lr_embedding", &L::loraplus_lr_embedding});
  r.read("Quantization", &Config::quant, Member{"load_in_4bit", &Q::load_in_4bit},
         Member{"load_in_8bit", &Q::load_in_8bit}, Member{"bnb_4bit_quant_type", &Q::bnb_4bit_quant_type},
         Member{"bnb_4bit_use_double_quant", &Q::bnb_4bit_use_double_quant},
         Member{"bnb_4bit_compute_dtype", &Q::bnb_4bit_compute_dtype},
         Member{"bnb_4bit_blocksize", &Q::bnb_4bit_blocksize},
         Member{"llm_int8_skip_modules", &Q::llm_int8_skip_modules}, Member{"dequantized_copy", &Q::dequantized_copy});
  r.read("Training", &Config::training, Member{"output_dir", &T::output_dir},
         Member{"per_device_train_batch_size", &T::per_device_train_batch_size},
         Member{"per_device_eval_batch_size", &T::per_device_eval_batch_size},
         Member{"gradient_accumulation_steps", &T::gradient_accumulation_steps},
         Member{"num_train_epochs", &T::num_train_epochs}, Member{"max_steps", &T::max_steps},
         Member{"learning_rate", &T::learning_rate}, Member{"lr_scheduler_type", &T::lr_scheduler_type},
         Member{"lr_scheduler_kwargs", &T::lr_scheduler_kwargs}, Member{"warmup_steps", &T::warmup_steps},
         Member{"warmup_ratio", &T::warmup_ratio}, Member{"optim", &T::optim}, Member{"optim_args", &T::optim_args},
         Member{"weight_decay", &T::weight_decay}, Member{"adam_beta1", &T::adam_beta1},
         Member{"adam_beta2", &T::adam_beta2}, Member{"adam_epsilon", &T::adam_epsilon},
         Member{"max_grad_norm", &T::max_grad_norm}, Member{"bf16", &T::bf16}, Member{"fp16", &T::fp16},
         Member{"tf32", &T::tf32}, Member{"operand_copies", &T::operand_copies},
         Member{"gradient_checkpointing", &T::gradient_checkpointing},
         Member{"activation_offloading", &T::activation_offloading}, Member{"optimizer_offload", &T::optimizer_offload},
         Member{"seed", &T::seed}, Member{"data_seed", &T::data_seed},
         Member{"train_sampling_strategy", &T::train_sampling_strategy},
         Member{"dataloader_drop_last", &T::dataloader_drop_last},
         Member{"dataloader_num_workers", &T::dataloader_num_workers},
         Member{"dataloader_prefetch_factor", &T::dataloader_prefetch_factor});
  r.read("Logging, evaluation, checkpoints", &Config::training, Member{"logging_strategy", &T::logging_strategy},
         Member{"logging_steps", &T::logging_steps}, Member{"logging_first_step", &T::logging_first_step},
         Member{"report_to", &T::report_to}, Member{"disable_tqdm", &T::disable_tqdm},
         Member{"eval_strategy", &T::eval_strategy}, Member{"eval_steps", &T::eval_steps},
         Member{"eval_delay", &T::eval_delay}, Member{"eval_on_start", &T::eval_on_start},
         Member{"save_strategy", &T::save_strategy}, Member{"save_steps", &T::save_steps},
         Member{"save_total_limit", &T::save_total_limit}, Member{"save_only_model", &T::save_only_model},
         Member{"load_best_model_at_end", &T::load_best_model_at_end},
         Member{"metric_for_best_model", &T::metric_for_best_model}, Member{"greater_is_better", &T::greater_is_better},
         Member{"resume_from_checkpoint", &T::resume_from_checkpoint});
  r.read("Machine", &Config::run, Member{"device", &R::device}, Member{"nproc", &R::nproc},
         Member{"nnodes", &R::nnodes}, Member{"node_rank", &R::node_rank}, Member{"master_addr", &R::master_addr},
         Member{"master_port", &R::master_port}, Member{"ddp_timeout", &R::ddp_timeout},
         Member{"max_restarts", &R::max_restarts}, Member{"deterministic_reduce", &R::deterministic_reduce},
         Member{"threads", &R::threads}, Member{"compute_dtype", &R::compute_dtype},
         Member{"max_nonfinite_steps", &R::max_nonfinite_steps}, Member{"use_cuda_graphs", &R::use_cuda_graphs});
  return r.take();
}

}  // namespace

std::span<const Field> fields() {
  static const std::vector<Field> kFields = read_fields();
  return kFields;
}

const Field* find_field(std::string_view name) {
  const auto at = std::ranges::find(fields(), name, &Field::name);
  return at == fields().end() ? nullptr : &*at;
}

OnResume on_resume(std::string_view key) {
  const Field* field = find_field(key);
  return field ? field->resume : OnResume::refused;
}

Assigned assign_field(Config& config, std::string_view key, const Json& value) {
  const Field* field = find_field(key);
  if (!field || (value.is_null() && !field->takes_null)) return {};
  const std::string error = field->store(*field, config, value);
  if (error.empty() || !value.is_string()) return {error};
  const auto text = value.get<std::string>();
  std::vector<std::string_view> words(field->words.begin(), field->words.end());
  if (key == "optim") words = available_optimizers();  // names of those that are not here are none
  if (const auto near = nearest(text, words); !near.empty()) return {error, fmt::format("did you mean \"{}\"?", near)};
  const Json inner = Json::parse(text, nullptr, false);  // in quotes, where it would do without them
  Config scratch;
  const bool fits = !inner.is_discarded() && !inner.is_null() && field->store(*field, scratch, inner).empty();
  return {error, fits ? "write it without quotes" : ""};
}

bool Range::contains(double v) const {
  return (low_open ? v > low : v >= low) && (high_open ? v < high : v <= high);
}

std::string Range::text() const {
  const bool has_low = std::isfinite(low), has_high = std::isfinite(high);
  if (has_low && has_high)
    return high >= 1 << 20 ? fmt::format("at least {:.15g} and at most {:.15g}", low, high)
                           : fmt::format("in {}{}, {}{}", low_open ? '(' : '[', low, high, high_open ? ')' : ']');
  if (has_low) return low_open ? fmt::format("greater than {}", low) : fmt::format("at least {}", low);
  return has_high ? fmt::format("at most {}", high) : "";
}

}  // namespace qtrain
