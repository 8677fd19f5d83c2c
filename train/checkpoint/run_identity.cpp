#include "train/checkpoint/run_identity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include "config/fields.h"
#include "core/formats/safetensors.h"
#include "core/secrets.h"
#include "optim/arguments.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMatmuls = "products";  ///< the precision of GEMMs, under the key that checkpoints use
/// Which of the frozen weights encoded by load_in_fp8 share a scale. Checkpoints that lack it have one per matrix, or
/// weights that were in FP8 before.
constexpr const char* kFp8Scales = "scales of load_in_fp8";
constexpr const char* kScalePerMatrix = "one per matrix";

/// Keys of config.json that do not affect results.
constexpr std::string_view kWithoutInfluence[] = {"_name_or_path", "transformers_version", "use_cache"};

LoraSection section_of(const LoraConfig& lora, LoraSection s) {
  s.use_peft = true;
  s.lora_r = lora.r;
  s.lora_alpha = lora.alpha;
  s.lora_dropout = lora.dropout;
  s.lora_target_modules = lora.targets;
  s.exclude_modules = lora.exclude_pattern.empty() ? lora.exclude_modules : std::vector{lora.exclude_pattern};
  s.layers_to_transform = lora.layers_to_transform;
  s.layers_pattern = lora.layers_pattern;
  s.rank_pattern = s.alpha_pattern = Json::object();
  for (const auto& [module, rank] : lora.rank_pattern) s.rank_pattern[module] = rank;
  for (const auto& [module, alpha] : lora.alpha_pattern) s.alpha_pattern[module] = alpha;
  s.use_rslora = lora.rslora;
  s.use_dora = lora.dora;
  s.lora_modules_to_save = lora.modules_to_save;
  s.ensure_weight_tying = lora.ensure_weight_tying;
  s.init_lora_weights = lora.init;
  return s;
}

QuantSection section_of(const Quantization& how, QuantSection s) {
  const bool four = how.bnb.bits == BnbConfig::Bits::four;
  s.load_in_4bit = four && !how.fp8;
  s.load_in_8bit = !four && !how.fp8;
  s.load_in_fp8 = how.fp8.has_value();
  s.llm_int8_skip_modules = how.bnb.skip_modules;
  if (!s.load_in_4bit) return s;
  s.bnb_4bit_quant_type = how.bnb.quant_type == FourBit::nf4 ? "nf4" : "fp4";
  s.bnb_4bit_use_double_quant = how.bnb.double_quant;
  s.bnb_4bit_blocksize = how.blocksize;
  return s;
}

// The config in force: settings that come from the adapter or model folder, and defaults for keys without effect.
Config in_force(const RunParts& run) {
  Config c = run.config;
  const TransformerOptions& model = run.setup.model->options();
  c.model.dtype = std::string(name_of(run.setup.saved_dtype));
  c.model.random_init = run.setup.random_init;
  c.model.template_date = run.template_date.empty() ? std::nullopt : std::optional(run.template_date);
  c.lora = model.lora ? section_of(*model.lora, c.lora) : LoraSection{};
  c.quant = model.quantization ? section_of(*model.quantization, c.quant) : QuantSection{};
  if (!c.data.eval_dataset_name.empty()) c.data.eval_split = 0;
  c.run.nproc = run.ranks;
  c.run.nnodes = 1;
  TrainingSection& t = c.training;
  t.data_seed = t.data_seed.value_or(t.seed);
  t.optim_args = OptimizerArguments(t.optim_args.value_or("")).text();
  t.optim = std::string(find_optimizer(t.optim)->rule);
  if (model.fp8) t.fp8_recipe = model.has_fp8_blocks() ? Fp8RecipeChoice::blockwise : Fp8RecipeChoice::tensorwise;
  return c;
}

// How runs with these keys computed before `key` existed, where that is not its default.
Json former_value(const Json& keys, std::string_view key) {
  if (keys.value("fp8", Json()) != true) return {};
  if (key == "fp8_forward") return true;
  if (key == "fp8_recipe") return "tensorwise";
  return {};
}

Json compared_keys(const Config& config) {
  Json keys = Json::object();
  const Json values = values_json(config);
  for (const auto& [key, value] : values.items())
    if (on_resume(key) != OnResume::silent) keys[key] = urls_without_credentials(value);
  return keys;
}

std::string name_of(MatmulPrecision precision) {
  switch (precision) {
    case MatmulPrecision::bf16: return "bfloat16";
    case MatmulPrecision::f16: return "float16";
    case MatmulPrecision::tf32: return "TF32";
    default: return "float32";
  }
}

// The weight files that the run starts from.
std::set<fs::path> weights_read(const ModelSetup& setup) {
  std::set<fs::path> files;
  if (!setup.random_init)
    for (const fs::path& file : safetensors_files(setup.source)) files.insert(file.lexically_normal());
  if (setup.adapter)
    for (const fs::path& file : safetensors_files(*setup.adapter)) files.insert(file.lexically_normal());
  return files;
}

// Keyed by file name only, since the files may have been moved to another folder.
void add_hashes(const RunParts& run, Json& identity) {
  identity["weights"] = identity["text"] = Json::object();
  const std::set<fs::path> weights = weights_read(run.setup);
  for (const auto& [path, hash] : run.provenance.at("files").items()) {
    const fs::path file = path;
    const std::string name = file.filename().string();
    const bool text = file.extension() != ".json" || name.find("token") != std::string::npos;
    if (weights.contains(file.lexically_normal()))
      identity["weights"][name] = hash;
    else if (text && file.extension() != ".safetensors")
      identity["text"][name] = hash;
  }
}

// Keys that together determine the micro-batches of an update: a change of one can make up for another.
constexpr std::string_view kMicroBatches[] = {"per_device_train_batch_size", "gradient_accumulation_steps", "nproc",
                                              "context_parallel_size"};

std::string differs(std::string_view what, const Json& was, const Json& is) {
  return fmt::format("{} = {}, the config says {}", what, dump_json(was), dump_json(is));
}

/// Compares two identities part by part.
class Comparison {
 public:
  Comparison(const Json& saved, const Json& now) : saved_(saved), now_(now), defaults_(compared_keys(Config{})) {}

  RunChanges run() {
    keys({OnResume::refused}, [&](const std::string& text) { out_.refused.push_back(text); });
    model();
    weights();
    rows();
    told();
    return std::move(out_);
  }

 private:
  Json saved_key(const std::string& key) const { return key_of(saved_, key); }
  Json now_key(const std::string& key) const { return key_of(now_, key); }
  Json key_of(const Json& identity, const std::string& key) const {
    const Json& keys = identity.at("keys");
    if (keys.contains(key)) return keys[key];
    const Json former = former_value(keys, key);  // the key is newer than the checkpoint
    return former.is_null() ? defaults_.value(key, Json()) : former;
  }

  using Values = std::function<Json(const std::string&)>;
  static Json product(const Json& a, const Json& b) {
    return a.is_number() && b.is_number() ? Json(a.get<double>() * b.get<double>()) : Json();
  }
  // Rows per update over all ranks; if equal, updates see the same rows in the same order however they are divided.
  static Json rows_of_update(const Values& value) {
    return product(rows_at_once(value), value("gradient_accumulation_steps"));
  }
  // Rows of one micro-batch over all ranks.
  static Json rows_at_once(const Values& value) {
    return product(ranks_with_rows(value), value("per_device_train_batch_size"));
  }
  static Json ranks_with_rows(const Values& value) {
    const Json ranks = value("nproc"), sharing = value("context_parallel_size");
    return ranks.is_number() && sharing.is_number() ? Json(ranks.get<double>() / sharing.get<double>()) : Json();
  }
  bool has_same_updates() const {
    const auto same = [&](Json (*of)(const Values&)) {
      const Json was = of([&](const std::string& key) { return saved_key(key); });
      return was.is_number() && was == of([&](const std::string& key) { return now_key(key); });
    };
    // drop_last drops a number of rows that depends on how many are taken at once.
    return same(rows_of_update) && (now_key("dataloader_drop_last") != true || same(rows_at_once));
  }

  template <class F>
  void keys(std::initializer_list<OnResume> kinds, F&& take) {
    for (const auto& [key, is] : now_.at("keys").items()) {
      if (std::ranges::find(kinds, on_resume(key)) == kinds.end()) continue;
      const Json was = saved_key(key);
      const bool made_up_for = std::ranges::find(kMicroBatches, key) != std::end(kMicroBatches) && has_same_updates();
      if (!made_up_for && comparable_value(key, was) != comparable_value(key, is)) take(differs(key, was, is));
    }
  }

  void model() {
    const Json &was = saved_.at("model"), &is = now_.at("model");
    for (const Json* side : {&is, &was})
      for (const auto& [key, ignored] : side->items()) {
        const Json before = was.value(key, Json()), after = is.value(key, Json());
        if (before == after || (side == &was && is.contains(key))) continue;
        // The router loss affects updates only, and it is a config key as well.
        auto& out = on_resume(key) == OnResume::update ? out_.told : out_.refused;
        out.push_back(fmt::format("{} = {} in the model's config.json, which now says {}", key, dump_json(before),
                                  dump_json(after)));
      }
  }

  // Names of files that were changed, removed or added.
  std::vector<std::string> changed_files(const char* part) const {
    std::vector<std::string> names;
    const Json &was = saved_.at(part), &is = now_.at(part);
    for (const auto& [name, hash] : is.items())
      if (was.value(name, Json()) != hash) names.push_back(name);
    for (const auto& [name, hash] : was.items())
      if (!is.contains(name)) names.push_back(name);
    return names;
  }

  void weights() {
    if (const auto names = changed_files("weights"); !names.empty())
      out_.refused.push_back(
          fmt::format("different initial weights: {} of model_name_or_path or adapter_name_or_path has changed",
                      fmt::join(names, ", ")));
    const Json was = saved_.value(kFp8Scales, Json(kScalePerMatrix)),
               is = now_.value(kFp8Scales, Json(kScalePerMatrix));
    if (was != is && now_key("load_in_fp8") == true && saved_key("load_in_fp8") == true)
      out_.refused.push_back(fmt::format("load_in_fp8 had scales {} and now has {}: fp8 and fp8_recipe decide",
                                         dump_json(was), dump_json(is)));
  }

  // Reports the first of these that explains the difference: keys, tokenizer and template files, the rows themselves.
  void rows() {
    if (saved_.at("rows") == now_.at("rows")) return saved_text();
    keys({OnResume::rows, OnResume::saved}, [&](const std::string& text) { out_.refused.push_back(text); });
    if (!out_.refused.empty()) return;
    if (const auto names = changed_files("text"); !names.empty()) {
      out_.refused.push_back(fmt::format("a different {}, which changes the rows", fmt::join(names, ", ")));
      return;
    }
    const Json files = now_key(now_key("dataset_name").empty() ? "dataset_mixture" : "dataset_name");
    out_.refused.push_back(fmt::format("different rows: those of {} have changed", dump_json(files)));
  }

  // Changes of text files that leave the rows the same still affect what the saved model contains.
  void saved_text() {
    for (const auto& [key, is] : now_.at("keys").items())
      if (const Json was = saved_key(key); on_resume(key) == OnResume::saved && !is_same_file(was, is))
        tell(key, was, is);
    for (const std::string& name : changed_files("text")) out_.told.push_back(fmt::format("a different {}", name));
  }

  // Whether two values name files with the same contents, wherever they are.
  bool is_same_file(const Json& was, const Json& is) const {
    const auto hash = [](const Json& value, const Json& files) {
      return value.is_string() ? files.value(fs::path(value.get<std::string>()).filename().string(), Json()) : Json();
    };
    const Json before = hash(was, saved_.at("text"));
    return !before.is_null() && before == hash(is, now_.at("text"));
  }

  void tell(const std::string& what, const Json& was, const Json& is) {
    if (was != is) out_.told.push_back(fmt::format("{} {} (was {})", what, dump_json(is), dump_json(was)));
  }

  void told() {
    for (const auto& [key, is] : now_.at("keys").items())
      if (const OnResume kind = on_resume(key); kind == OnResume::update || kind == OnResume::note)
        tell(key, saved_key(key), is);
    if (has_same_updates())
      for (const std::string_view key : kMicroBatches)
        tell(std::string(key), saved_key(std::string(key)), now_key(std::string(key)));
    if (has_same_updates()) micro_batch_size();
    tell("GEMMs in", saved_.at(kMatmuls), now_.at(kMatmuls));
    tell("device", saved_.at("device"), now_.at("device"));
    const bool same_files = saved_key("eval_dataset_name") == now_key("eval_dataset_name");
    if (same_files && saved_.at("evaluation rows") != now_.at("evaluation rows"))
      out_.told.push_back("different evaluation rows");
  }

  void micro_batch_size() {
    const std::string key = "per_device_train_batch_size";
    const Json& keys = now_.at("keys");
    if (saved_key(key) == keys.at(key)) return;
    out_.told.push_back("the same rows in each update, added in a different order: the last bits may differ");
    if (keys.at("lora_dropout") != 0) out_.told.push_back("different dropout masks, which depend on the micro-batches");
    if (now_.at("model").contains("router_aux_loss_coef"))
      out_.told.push_back("router losses over different micro-batches");
  }

  const Json &saved_, &now_;
  Json defaults_;
  RunChanges out_;
};

}  // namespace

Json run_identity(const RunParts& parts, MatmulPrecision matmul) {
  Json model = parts.setup.model->config().json;
  for (const std::string_view key : kWithoutInfluence) model.erase(std::string(key));
  Json identity{{"keys", compared_keys(in_force(parts))},
                {"model", std::move(model)},
                {"rows", fmt::format("{:016x}", parts.train.fingerprint())},
                {"evaluation rows", fmt::format("{:016x}", parts.evaluation.fingerprint())},
                {kMatmuls, name_of(matmul)},
                {"device", parts.provenance.at("device")}};
  add_hashes(parts, identity);
  const std::optional<Quantization>& stored = parts.setup.model->options().quantization;
  if (stored && stored->fp8 && !stored->fp8->of_files)
    identity[kFp8Scales] = stored->fp8->has_one_scale() ? kScalePerMatrix : "one per 128 x 128 weights";
  return identity;
}

void require_identity(const Json& identity, const std::string& place) {
  constexpr std::size_t kMost = 10'000;  // names are looked up by linear search
  for (const char* part : {"keys", "model", "weights", "text"}) {
    if (!identity.contains(part) || !identity[part].is_object())
      fail(ErrorKind::input, {.cause = fmt::format("\"identity\" has no object \"{}\"", part), .place = place});
    if (identity[part].size() > kMost)
      fail(ErrorKind::input,
           {.cause = fmt::format("\"{}\" of \"identity\" has more than {} names", part, kMost), .place = place});
  }
  for (const char* part : {"rows", "evaluation rows", kMatmuls, "device"})
    if (!identity.contains(part) || !identity[part].is_string())
      fail(ErrorKind::input, {.cause = fmt::format("\"identity\" has no string \"{}\"", part), .place = place});
}

RunChanges run_changes(const Json& saved, const Json& now) {
  return Comparison(saved, now).run();
}

Json comparable_value(std::string_view key, const Json& value) {
  if (key == "optim" && value.is_string()) {
    const NamedOptimizer* optimizer = find_optimizer(value.get<std::string>());
    return optimizer && !optimizer->rule.empty() ? Json(optimizer->rule) : value;
  }
  const bool targets = key == "lora_target_modules";
  if ((!targets && key != "lora_modules_to_save") || !value.is_array()) return value;
  if (!std::all_of(value.begin(), value.end(), [](const Json& name) { return name.is_string(); })) return value;
  auto names = value.get<std::vector<std::string>>();
  if (targets) return expanded_targets(names);
  std::ranges::sort(names);
  return names;
}

std::optional<std::string> template_date_of(const Json& identity) {
  const auto keys = identity.find("keys");
  if (keys == identity.end() || !keys->is_object()) return {};
  const auto date = keys->find(kTemplateDate);
  if (date == keys->end() || !date->is_string()) return {};
  return date->get<std::string>();
}

}  // namespace qtrain
