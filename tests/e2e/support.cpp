#include "tests/e2e/support.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "core/formats/safetensors.h"
#include "core/os/file.h"
#include "core/sha256.h"
#include "tests/golden/sums.h"

namespace qtrain::e2e {
namespace {

/// The character U+0100 + id in UTF-8; there are enough for ids below 1,792.
std::string letter(int id) {
  const int code = 0x100 + id;
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

std::vector<double> values_of(const ConstTensor& t) {
  std::vector<double> values(static_cast<std::size_t>(t.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) switch (t.dtype) {
      case DType::f32: values[i] = t.as<float>()[i]; break;
      case DType::bf16: values[i] = static_cast<float>(t.as<Bf16>()[i]); break;
      case DType::f16: values[i] = static_cast<float>(t.as<F16>()[i]); break;
      case DType::f64: values[i] = t.as<double>()[i]; break;
      default: ADD_FAILURE() << "a tensor of another type";
    }
  return values;
}

/// Caches that only this program uses, so that no rows or models come from elsewhere and none remain. No hub is asked.
class OwnCaches {
 public:
  OwnCaches() : folder_(fs::temp_directory_path() / ("qtrain_caches_" + std::to_string(::getpid()))) {
    ::setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
    ::setenv("HF_HOME", (folder_ / "huggingface").c_str(), 1);
    ::setenv("HF_HUB_OFFLINE", "1", 1);
  }
  ~OwnCaches() { fs::remove_all(folder_); }

 private:
  fs::path folder_;
};

std::string from_environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

}  // namespace

fs::path source_folder() {
  return from_environment("QTRAIN_SOURCE_DIR", QTRAIN_SOURCE_DIR);
}
std::string program() {
  return from_environment("QTRAIN_PROGRAM", QTRAIN_PROGRAM);
}

Launch launch_of(const Call& call) {
  static const OwnCaches kCaches;
  std::vector<std::string> argv{program()};
  argv.insert(argv.end(), call.words.begin(), call.words.end());
  return {.argv = argv, .folder = call.folder, .input = call.input, .environment = call.environment};
}

Outcome qtrain(const Call& call) {
  return Process(launch_of(call)).wait();
}

Outcome qtrain_ok(const Call& call) {
  const Outcome outcome = qtrain(call);
  EXPECT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  EXPECT_FALSE(outcome.timed_out);
  return outcome;
}

std::vector<std::string> overrides(const Json& values) {
  std::vector<std::string> words;
  for (const auto& [key, value] : values.items()) words.push_back(key + "=" + dump_json(value));
  return words;
}

Outcome train_ok(const fs::path& folder, const Json& config, const std::vector<std::string>& more) {
  write_file(folder / "config.json", dump_json(config, 2));
  std::vector<std::string> words{(folder / "config.json").string()};
  words.insert(words.end(), more.begin(), more.end());
  return qtrain_ok({.words = words});
}

void reseal(const fs::path& checkpoint, const std::string& name) {
  Json manifest = read_json(checkpoint / "manifest.json");
  manifest["files"][name] = {{"sha256", sha256_of_file(checkpoint / name)}, {"size", fs::file_size(checkpoint / name)}};
  manifest.erase("sha256");
  manifest["sha256"] = sha256_of(dump_json(manifest));
  write_file(checkpoint / "manifest.json", dump_json(manifest));
}

std::vector<std::string> checkpoint_names(const fs::path& output) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(output))
    if (entry.path().filename().string().starts_with("checkpoint-")) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<Json> history(const fs::path& output, const char* key) {
  std::vector<Json> rows;
  const Json state = read_json(output / "trainer_state.json");
  for (const Json& row : state.at("log_history"))
    if (row.contains(key)) rows.push_back(row);
  return rows;
}

std::vector<double> column(const std::vector<Json>& rows, const char* key) {
  std::vector<double> values;
  for (const Json& row : rows) values.push_back(row.at(key).get<double>());
  return values;
}

Json history_without_times(const fs::path& output) {
  Json rows = read_json(output / "trainer_state.json").at("log_history");
  for (Json& row : rows)
    for (const char* key : {"eval_runtime", "eval_samples_per_second", "eval_steps_per_second", "train_runtime",
                            "train_samples_per_second", "train_steps_per_second"})
      row.erase(key);
  return rows;
}

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

std::string bytes_of(const fs::path& file) {
  return read_text(file);
}

std::vector<Json> read_jsonl(const fs::path& file) {
  std::vector<Json> rows;
  const std::string text = read_text(file);
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    rows.push_back(parse_json(std::string_view(text).substr(begin, end - begin), file.string()));
  return rows;
}

std::string jsonl(const std::vector<Json>& rows) {
  std::string text;
  for (const Json& row : rows) text += dump_json(row) + "\n";
  return text;
}

std::map<std::string, std::vector<double>> tensors_of(const fs::path& path) {
  const SafetensorsReader reader(path);
  std::map<std::string, std::vector<double>> all;
  for (const auto& [name, tensor] : reader.tensors()) all[name] = values_of(tensor);
  return all;
}

namespace {
using ValuesByName = std::map<std::string, std::vector<double>>;

double largest_difference(const ValuesByName& left, const ValuesByName& right) {
  EXPECT_EQ(left.size(), right.size());
  double largest = 0;
  for (const auto& [name, values] : left) {
    const auto other = right.find(name);
    if (other == right.end() || other->second.size() != values.size()) {
      ADD_FAILURE() << name << " differs in shape or is missing";
      continue;
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_TRUE(std::isfinite(values[i])) << name;
      largest = std::max(largest, std::abs(values[i] - other->second[i]));
    }
  }
  return largest;
}
}  // namespace

double largest_difference(const fs::path& a, const fs::path& b) {
  return largest_difference(tensors_of(a), tensors_of(b));
}
double largest_difference_of_sums(const fs::path& sums, const fs::path& weights) {
  ValuesByName found = tensors_of(weights);
  for (auto& [name, values] : found) values = qtrain::testing::signed_sums(values);
  return largest_difference(found, tensors_of(sums));
}

Json tiny_run(const fs::path& output) {
  return {{"model_name_or_path", (kGoldens / "llama_gqa3_tied").string()},
          {"dataset_name", (kGoldens / "curves/cosine/data.jsonl").string()},
          {"output_dir", output.string()},
          {"bf16", false},
          {"threads", 1},
          {"max_steps", 8},
          {"per_device_train_batch_size", 2},
          {"gradient_accumulation_steps", 2},
          {"gradient_checkpointing", false},
          {"learning_rate", 0.005},
          {"warmup_steps", 2},
          {"weight_decay", 0.1},
          {"logging_steps", 1},
          {"save_strategy", "no"}};
}

Json tiny_lora_run(const fs::path& output) {
  Json config = tiny_run(output);
  config.update({{"use_peft", true},
                 {"lora_r", 4},
                 {"lora_alpha", 8},
                 {"lora_dropout", 0.2},
                 {"lora_target_modules", "all-linear"}});
  return config;
}

Outcome RunOver::run_over(const std::string& lines, const Json& change) {
  write_file(folder_ / "rows.jsonl", lines);
  Json config = tiny_run(folder_ / "out");
  config["dataset_name"] = (folder_ / "rows.jsonl").string();
  config.update(change);
  write_file(folder_ / "run.json", dump_json(config, 2));
  return qtrain({.words = {(folder_ / "run.json").string()}});
}

void write_untrained_model(const fs::path& folder) {
  fs::create_directories(folder);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    fs::copy_file(kChatml / name, folder / name);
  const Json config{{"architectures", Json::array({"LlamaForCausalLM"})},
                    {"model_type", "llama"},
                    {"vocab_size", 400},
                    {"hidden_size", 48},
                    {"intermediate_size", 96},
                    {"num_hidden_layers", 2},
                    {"num_attention_heads", 4},
                    {"num_key_value_heads", 2},
                    {"max_position_embeddings", 256},
                    {"rms_norm_eps", 1e-5},
                    {"initializer_range", 0.02},
                    {"rope_theta", 10000.0},
                    {"hidden_act", "silu"},
                    {"eos_token_id", 2},
                    {"tie_word_embeddings", true},
                    {"torch_dtype", "float32"}};
  write_file(folder / "config.json", dump_json(config, 2));
}

void give_random_weights(const fs::path& folder) {
  const TempFolder made;
  Json config = tiny_run(made / "out");
  config.update({{"model_name_or_path", folder.string()},
                 {"random_init", true},
                 {"device", "cpu"},
                 {"learning_rate", 0},
                 {"max_steps", 1}});
  train_ok(made.path(), config);
  fs::copy_file(made / "out/model.safetensors", folder / "model.safetensors");
}

void expect_estimates_to_hold(const std::string& device) {
  const TempFolder folder;
  write_untrained_model(folder / "model");
  give_random_weights(folder / "model");
  const std::string rows = (folder / "data.jsonl").string(), more = " and more of it, and the rest of all of it";
  write_file(rows, jsonl({{{"text", "a row"}}, {{"text", "another row" + more}}, {{"text", "a third"}}}));
  const Json evaluated{{"eval_dataset_name", rows}, {"eval_strategy", "steps"}, {"eval_steps", 1}};
  Json adapter{{"use_peft", true}, {"lora_r", 4}, {"lora_dropout", 0.1}, {"lora_target_modules", "all-linear"}};
  Json narrow_adapter = adapter;
  const Json rounded{{"optim_args", "stochastic_rounding=true"}, {"gradient_checkpointing", "selective"}};
  narrow_adapter.update({{"bf16", true}, {"dtype", "bfloat16"}, {"gradient_checkpointing", "auto"}});
  Json started = adapter;
  started["init_lora_weights"] = "pissa";
  adapter.update(evaluated);
  const Json whole{{"use_peft", true},
                   {"lora_target_modules", {"q_proj", "embed_tokens"}},
                   {"lora_modules_to_save", {"lm_head", "norm"}}};
  for (const Json& kind : std::vector<Json>{{{"packing", true}, {"neftune_noise_alpha", 5}},
                                            {{"bf16", true}, {"gradient_checkpointing", "selective"}},
                                            rounded,
                                            {{"gradient_checkpointing", true}, {"optim", "adamw_8bit"}},
                                            {{"gradient_checkpointing", "blocks:2"}, {"optim", "muon"}},
                                            evaluated,
                                            adapter,
                                            narrow_adapter,
                                            started,
                                            whole}) {
    const fs::path output = folder / "out";
    Json config = tiny_run(output);
    config.update({{"model_name_or_path", (folder / "model").string()},
                   {"dataset_name", rows},
                   {"device", device},
                   {"max_length", 24},
                   {"max_steps", 1}});
    config.update(kind);
    fs::remove_all(output);
    train_ok(folder.path(), config);
    const Json memory = read_json(output / "train_results.json").at("memory");
    const std::string said = qtrain_ok({.words = {"estimate", (folder / "config.json").string(), "--json"}}).out;
    const Json estimated = parse_json(said, "estimate").at("memory");
    EXPECT_EQ(estimated, memory.at("planned")) << kind;
    EXPECT_EQ(estimated.at("total"), memory.at("allocated")) << kind;
  }
}

void write_letter_tokenizer(const fs::path& folder, int size) {
  Json vocabulary = Json::object();
  for (int id = 0; id < size; ++id) vocabulary[letter(id)] = id;
  const Json tokenizer{{"version", "1.0"},
                       {"added_tokens", Json::array()},
                       {"normalizer", nullptr},
                       {"pre_tokenizer", nullptr},
                       {"post_processor", nullptr},
                       {"decoder", {{"type", "Fuse"}}},
                       {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}};
  write_file(folder / "tokenizer.json", dump_json(tokenizer));
  write_file(folder / "tokenizer_config.json", "{}");
}

std::string letters(const std::vector<int>& ids) {
  std::string text;
  for (const int id : ids) text += letter(id);
  return text;
}

}  // namespace qtrain::e2e
