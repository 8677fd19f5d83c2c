#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "config/dialect.h"
#include "config/document.h"
#include "config/rewrite_rules.h"

/// LLaMA-Factory: model, data, training and fine-tuning arguments in one flat YAML or JSON.
namespace qtrain {
namespace {

constexpr bool kRefusedThere = true, kRemarkedThere = false, kWarnedThere = true;

constexpr auto kFactoryInert = std::to_array<InertKey>({
    {"tool_format", kRemarkedThere, "[]", "tools are rendered by the chat template of the model's folder"},
    {"default_system", kRefusedThere, "[]", "a system message belongs into the rows or the chat template"},
    {"enable_thinking", kRefusedThere, "[true]",
     "a row's own chat_template_kwargs say it: {\"enable_thinking\": false} as a column of the rows"},
    {"flash_attn", kRemarkedThere, "[\"auto\"]", "there is one attention kernel"},
    {"shift_attn", kRefusedThere, "[false]", "shifted attention is not available"},
    {"enable_liger_kernel", kRemarkedThere, "[false]", "the loss and the norms are always fused"},
    {"use_unsloth_gc", kRemarkedThere, "[false]", "see gradient_checkpointing and activation_offloading"},
    {"use_reentrant_gc", kRemarkedThere, "[true,false]", "recomputation has no options"},
    {"use_v1_kernels", kRemarkedThere, "[false]", "the program has its own kernels"},
    {"upcast_layernorm", kRemarkedThere, "[true,false]", "norms are always computed in float32"},
    {"upcast_lmhead_output", kRemarkedThere, "[true,false]", "the loss is always computed in float32"},
    {"pure_bf16", kRemarkedThere, "[false]", "trained weights stay in float32; bf16 says how products are computed"},
    {"use_fast_tokenizer", kRemarkedThere, "[true,false]", "there is one tokenizer"},
    {"split_special_tokens", kRefusedThere, "[false]", "special tokens are never split"},
    {"resize_vocab", kRefusedThere, "[false]", "the vocabulary stays as it is"},
    {"add_tokens", kRefusedThere, "[]", "the vocabulary stays as it is"},
    {"add_special_tokens", kRefusedThere, "[]", "the vocabulary stays as it is"},
    {"new_special_tokens", kRefusedThere, "[]", "the vocabulary stays as it is"},
    {"new_special_tokens_config", kRefusedThere, "[]", "the vocabulary stays as it is"},
    {"init_special_tokens", kRemarkedThere, "[\"noise_init\"]", "the vocabulary stays as it is"},
    {"rope_scaling", kRefusedThere, "[]", "set it in the model's config.json"},
    {"mixture_of_depths", kRefusedThere, "[]", "mixture of depths is not available"},
    {"moe_aux_loss_coef", kRefusedThere, "[0]", "mixtures of experts are not available"},
    {"quantization_method", kRefusedThere, "[\"bnb\",\"bitsandbytes\"]", "only bitsandbytes quantization is known"},
    {"quantization_device_map", kRemarkedThere, "[\"auto\"]", "see device and nproc"},
    {"fp8*", kRefusedThere, "[false,\"auto\"]", "FP8 training is not available"},
    {"overwrite_cache", kRemarkedThere, "[true,false]", "a cache is found by the content of the rows"},
    {"preprocessing_num_workers", kRemarkedThere, "[]", "rows are tokenized by all threads"},
    {"preprocessing_batch_size", kRemarkedThere, "[1000]", "rows are tokenized one by one"},
    {"streaming", kRemarkedThere, "[false]", "files are mapped, never held whole"},
    {"buffer_size", kRemarkedThere, "[16384]", "files are mapped, never held whole"},
    {"media_dir", kRemarkedThere, "[]", "models take text only"},
    {"image_*", kRemarkedThere, "[]", "models take text only"},
    {"video_*", kRemarkedThere, "[]", "models take text only"},
    {"audio_*", kRemarkedThere, "[]", "models take text only"},
    {"crop_to_patches", kRemarkedThere, "[false]", "models take text only"},
    {"use_audio_in_video", kRemarkedThere, "[false]", "models take text only"},
    {"ignore_pad_token_for_loss", kRemarkedThere, "[true]", "batches are never padded"},
    {"eval_on_each_dataset", kRefusedThere, "[false]", "evaluation rows are one set"},
    {"plot_loss", kRemarkedThere, "[true,false]", "losses are in metrics.jsonl"},
    {"compute_accuracy", kRemarkedThere, "[false]", "evaluation gives the loss"},
    {"predict_with_generate", kRemarkedThere, "[false]", "see qtrain eval --generate"},
    {"include_effective_tokens_per_second", kRemarkedThere, "[true,false]", "tokens per second are always logged"},
    {"print_param_status", kRemarkedThere, "[false]", "see qtrain inspect"},
    {"early_stopping_steps", kRefusedThere, "[]", "a run goes on to its last step"},
    {"create_new_adapter", kRefusedThere, "[false]", "merge the old adapter first"},
    {"pissa_*", kRefusedThere, "[false,16]", "A is drawn as PEFT does by default and B is zero"},
    {"use_llama_pro", kRefusedThere, "[false]", "models keep their layers"},
    {"use_galore", kRefusedThere, "[false]", "GaLore is not available"},
    {"use_apollo", kRefusedThere, "[false]", "APOLLO is not available"},
    {"use_badam", kRefusedThere, "[false]", "BAdam is not available"},
    {"use_adam_mini", kRefusedThere, "[false]", "Adam-mini is not available"},
    {"use_dft_loss", kRefusedThere, "[false]", "only the negative log-likelihood is available"},
    {"use_mca", kRefusedThere, "[false]", "Megatron is not available"},
    {"galore_*", kRemarkedThere, "[]", "GaLore is not available"},
    {"apollo_*", kRemarkedThere, "[]", "APOLLO is not available"},
    {"badam_*", kRemarkedThere, "[]", "BAdam is not available"},
    {"oft_*", kRemarkedThere, "[]", "only LoRA adapters are available"},
    {"freeze_*", kRemarkedThere, "[true,false]", "which weights are trained is said by finetuning_type"},
    {"pref_*", kRemarkedThere, "[]", "they are about preferences, and the stage is sft"},
    {"ppo_*", kRemarkedThere, "[]", "they are about preferences, and the stage is sft"},
    {"kto_*", kRemarkedThere, "[]", "they are about preferences, and the stage is sft"},
    {"dpo_*", kRemarkedThere, "[]", "they are about preferences, and the stage is sft"},
    {"ref_model*", kRemarkedThere, "[]", "they are about preferences, and the stage is sft"},
    {"reward_model*", kRemarkedThere, "[]", "they are about preferences, and the stage is sft"},
    {"use_swanlab", kRemarkedThere, "[\"\",false]", kNotSent, kWarnedThere},
    {"swanlab_*", kRemarkedThere, "[]", "metrics stay in output_dir"},
    {"ray_*", kRemarkedThere, "[]", "ranks are started by nproc"},
    {"resources_per_worker", kRemarkedThere, "[]", "ranks are started by nproc"},
    {"placement_strategy", kRemarkedThere, "[]", "ranks are started by nproc"},
    {"infer_*", kRemarkedThere, "[]", "see qtrain generate"},
    {"vllm_*", kRemarkedThere, "[]", "see qtrain generate"},
    {"export_*", kRemarkedThere, "[]", "see qtrain merge and qtrain export"},
    {"do_sample", kRemarkedThere, "[]", "see qtrain generate"},
    {"temperature", kRemarkedThere, "[]", "see qtrain generate"},
    {"top_p", kRemarkedThere, "[]", "see qtrain generate"},
    {"top_k", kRemarkedThere, "[]", "see qtrain generate"},
    {"num_beams", kRemarkedThere, "[]", "see qtrain generate"},
    {"eval_num_beams", kRemarkedThere, "[]", "see qtrain generate"},
    {"max_new_tokens", kRemarkedThere, "[]", "see qtrain generate"},
    {"repetition_penalty", kRemarkedThere, "[]", "see qtrain generate"},
    {"offload_folder", kRemarkedThere, "[]", "models are local folders"},
    {"use_kv_cache", kRemarkedThere, "[true,false]", "training keeps no key/value cache"},
    {"hf_hub_token", kRemarkedThere, "[]", "the program does not use the network"},
    {"ms_hub_token", kRemarkedThere, "[]", "the program does not use the network"},
    {"om_hub_token", kRemarkedThere, "[]", "the program does not use the network"},
    {"mix_strategy", kRefusedThere, "[\"concat\"]", "files are read one behind the other"},
    {"interleave_probs", kRefusedThere, "[]", "files are read one behind the other"},
});

Rewritten quantization_bit(const Json& v) {
  if (v.is_null()) return {};
  if (v == 4) return {.settings = {{"load_in_4bit", true}}};
  if (v == 8) return {.settings = {{"load_in_8bit", true}}};
  return {.settings = {}, .problem = fmt::format("{} bits are not available; available: 4, 8", show(v))};
}

std::vector<Rewrite> factory_rewrites() {
  return {{"template", "chat_template_path, where the program has that format; else the model's own is used",
           named_template({{"chatml", "chatml"},
                           {"cohere", "command_r"},
                           {"gemma", "gemma"},
                           {"llama3", "llama3"},
                           {"mistral", "mistral"},
                           {"phi", "phi3"},
                           {"phi4", "phi4"},
                           {"zephyr", "zephyr"}})},
          {"finetuning_type", "lora: use_peft; full: all weights",
           word_among({{"lora", {{"use_peft", true}}}, {"full", {{"use_peft", false}}}})},
          {"stage", "sft; pt: loss on all tokens, packed",
           word_among({{"sft", {}},
                       {"pt", {{"assistant_only_loss", false}, {"completion_only_loss", false}, {"~stage", "pt"}}}})},
          {"lora_target", "lora_target_modules, \"all\" being all-linear", lora_targets("all")},
          {"additional_target", "lora_modules_to_save", words_of_list("lora_modules_to_save")},
          {"quantization_bit", "4: load_in_4bit; 8: load_in_8bit", quantization_bit},
          {"quantization_type", "bnb_4bit_quant_type", as_key("bnb_4bit_quant_type")},
          {"double_quantization", "bnb_4bit_use_double_quant", as_key("bnb_4bit_use_double_quant")},
          {"dataset", "names of dataset_info.json in dataset_dir, or files", words_of_list("~dataset")},
          {"eval_dataset", "likewise", words_of_list("~eval_dataset")},
          {"dataset_dir", "the folder of dataset_info.json", pending("dataset_dir")},
          {"tokenized_path", "token_cache_dir", as_key("token_cache_dir")},
          {"train_on_prompt", "true: loss on all tokens", loss_on_prompt},
          {"val_size", "eval_split", as_key("eval_split")},
          {"neat_packing", "true: packing", when_true("packing", true)},
          {"disable_gradient_checkpointing", "true: gradient_checkpointing false",
           when_true("gradient_checkpointing", false, true)},
          {"use_muon", "true: optim muon", when_true("optim", "muon")},
          {"disable_shuffling", "true: train_sampling_strategy sequential",
           when_true("train_sampling_strategy", "sequential")},
          {"train_from_scratch", "true: random_init", when_true("random_init", true)},
          {"adapter_folder", "", as_key("adapter_name_or_path")}};
}

/// Whether a data set gives a name; an empty one stands for none.
bool names_one(const Json& given, std::string_view key) {
  const auto at = given.find(key);
  return at != given.end() && at->is_string() && *at != "";
}

/// Names that a data set gives to `known` ones, without those that rows may have anyway.
Json other_names(const Json& given, std::span<const std::array<std::string_view, 3>> known) {
  Json names = Json::object();
  for (const auto& [key, ours, usual] : known)
    if (names_one(given, key) && given.at(key) != ours && given.at(key) != usual)
      names[std::string(ours)] = given.at(key);
  return names;
}

/// Members of an entry in dataset_info.json that change its rows, and what to do about them.
constexpr std::array<std::array<std::string_view, 2>, 3> kRefusedEntry{
    {{"ranking", "preferences are not trained on: name a data set of answers"},
     {"split", "a file is read whole: put the split into a file of its own"},
     {"num_samples", "max_samples takes the first rows of a run; cut the file for a single data set"}}};

/// A data set by its entry in dataset_info.json: its file, or a source of dataset_mixture where its columns have names
/// of their own; none where the entry cannot be read.
std::optional<Json> registered_source(Draft& draft, const std::filesystem::path& registry, const Json& entry,
                                      const std::string& name) {
  using Name = std::array<std::string_view, 3>;  // theirs, ours, another that is known
  constexpr std::array<Name, 1> kTexts{{{"prompt", "text", ""}}};
  constexpr std::array<Name, 4> kAlpaca{
      {{"prompt", "instruction", ""}, {"query", "input", ""}, {"response", "output", ""}, {"history", "history", ""}}};
  constexpr std::array<Name, 3> kBoth{
      {{"messages", "messages", "conversations"}, {"system", "system", ""}, {"tools", "tools", ""}}};
  constexpr std::array<Name, 2> kMessage{{{"role_tag", "role", "from"}, {"content_tag", "content", "value"}}};
  constexpr std::array<Name, 5> kRoles{{{"user_tag", "user", "human"},
                                        {"assistant_tag", "assistant", "gpt"},
                                        {"observation_tag", "tool", "observation"},
                                        {"system_tag", "system", ""},
                                        {"function_tag", "function_call", ""}}};
  if (!entry.is_object() || !entry.contains("file_name") || !entry["file_name"].is_string()) {
    draft.problem(registry.string(), fmt::format("\"{}\": no file_name", name), "data sets are local files: name one");
    return std::nullopt;
  }
  for (const auto& [member, why] : kRefusedEntry)
    if (const auto it = entry.find(member); it != entry.end() && *it != Json(nullptr) && *it != false && *it != "train")
      draft.problem(registry.string(), fmt::format("\"{}\": {} {}", name, member, show(*it)), std::string(why));
  const std::string file = (registry.parent_path() / entry["file_name"].get<std::string>()).string();
  const Json columns = entry.value("columns", Json::object()), tags = entry.value("tags", Json::object());
  const bool texts = names_one(columns, "prompt") && !names_one(columns, "response") && !names_one(columns, "messages");
  Json source{{"path", file}, {"column_mapping", texts ? other_names(columns, kTexts) : other_names(columns, kAlpaca)}};
  source["column_mapping"].update(other_names(columns, kBoth));
  source["message_property_mappings"] = other_names(tags, kMessage);
  source["role_mapping"] = other_names(tags, kRoles);
  for (const char* map : {"column_mapping", "message_property_mappings", "role_mapping"})
    if (source[map].empty()) source.erase(map);
  if (names_one(columns, "response") && !names_one(columns, "query")) {  // where columns are named, no others count
    source["columns"] = Json::array({"chat_template_kwargs"});
    for (const auto& [ours, theirs] : columns.items())
      if (names_one(columns, ours)) source["columns"].push_back(theirs);
  }
  return source.size() == 1 ? Json(file) : source;
}

/// What is read of a source for evaluation, which has no columns of its own.
Json evaluation_source(Draft& draft, const Setting& names, const Json& source) {
  for (const char* map : {"column_mapping", "message_property_mappings", "role_mapping"})
    if (source.is_object() && source.contains(map)) {
      draft.problem(names.place, "columns of evaluation rows have names of their own", "rename the fields");
      return source;
    }
  if (source.is_string()) return source;
  draft.remarks.push_back(fmt::format("{}: of evaluation rows all columns count that the program knows", names.place));
  return source.at("path");
}

/// Names of data sets as files.
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
  draft.offer(mixture ? "dataset_mixture" : key, {names->written, names->place, files});
}

void settle_factory(Draft& draft) {
  settle_datasets(draft, "~dataset", "dataset_name");
  settle_datasets(draft, "~eval_dataset", "eval_dataset_name");
  if (const Setting* rank = draft.find("lora_r"); rank && rank->value.is_number())
    draft.offer("lora_alpha", {fmt::format("2 x {}", rank->written), rank->place, 2 * rank->value.get<double>()});
  const Setting *names = draft.find("~dataset"), *most = draft.find("max_samples");
  if (names && most && names->value.is_array() && names->value.size() > 1)
    draft.remarks.push_back(
        fmt::format("{}: \"{}\" counts the rows of all data sets together", most->place, most->written));
  if (const Setting* stage = draft.find("~stage")) draft.offer("packing", {stage->written, stage->place, true});
}

/// Weights are loaded in the type of the products.
void complete_factory(ResolvedConfig& c) {
  tell_answers_apart(c);
  if (c.given("dtype")) return;
  if (c.value.training.bf16) c.value.model.dtype = "bfloat16";
  if (c.value.training.fp16) c.value.model.dtype = "float16";
}

}  // namespace

Dialect llamafactory_dialect() {
  return {.name = "llamafactory",
          .about = "LLaMA-Factory, in YAML or JSON",
          .sure = {"finetuning_type", "stage", "lora_target", "quantization_bit", "neat_packing", "dataset_dir",
                   "overwrite_cache", "preprocessing_num_workers"},
          .usual = {"template", "plot_loss", "cutoff_len", "lora_rank", "val_size", "dataset"},
          .ignored = {},
          .defaults = {{"use_peft", "true"},
                       {"lora_r", "8"},
                       {"lora_alpha", "16"},
                       {"lora_dropout", "0"},
                       {"lora_target_modules", "\"all-linear\""},
                       {"bnb_4bit_use_double_quant", "true"},
                       {"dtype", "\"auto\""},
                       {"max_length", "2048"},
                       {"assistant_only_loss", "true"},
                       {"completion_only_loss", "true"},
                       {"learning_rate", "5e-5"},
                       {"bf16", "false"},
                       {"gradient_checkpointing", "true"},
                       {"logging_steps", "500"}},
          .rewrites = factory_rewrites(),
          .inert = kFactoryInert,
          .settle = settle_factory,
          .complete = complete_factory};
}

}  // namespace qtrain
