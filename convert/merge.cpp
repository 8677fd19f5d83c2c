#include "convert/merge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>

#include "convert/adapter_deltas.h"
#include "convert/stoppable_job.h"
#include "core/formats/json_view.h"
#include "core/os/paths.h"
#include "kernels/elementwise.h"
#include "model/dense_weight.h"
#include "model/families/family.h"
#include "model/hf_folder.h"
#include "model/lora.h"
#include "model/model_config.h"
#include "model/module_names.h"
#include "model/tied_head.h"
#include "text/template/load.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/tokenizer.h"
#include "train/checkpoint/pending_model.h"
#include "train/setup/named_tokens.h"
#include "train/setup/text_folder.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kQuantization = "quantization_config";

using Append = std::function<void(std::span<const std::byte>)>;

struct WeightedDeltas {
  AdapterDeltas deltas;
  double weight;
};

void check_folders(const MergeOptions& options) {
  if (!path_exists(options.model / "config.json"))
    fail(ErrorKind::input, {.cause = "the folder has no config.json", .place = options.model.string()});
  std::error_code same;
  if (fs::equivalent(options.model, options.output, same))
    fail(ErrorKind::usage, {.cause = "the output is the model's own folder",
                            .place = options.output.string(),
                            .remedy = "choose another folder, or the unmerged weights would be lost"});
  const fs::path file = options.model / "config.json";
  const Json config = read_json(file);
  if (reading(file, [&] { return JsonView(config).find(kQuantization).has_value(); }) &&
      !fp8_config(config, file.string()))
    fail(ErrorKind::input, {.cause = "the weights are quantized, so merging into them would lose most of the adapter",
                            .place = options.model.string(),
                            .remedy = "give the 32- or 16-bit model that they were made from with --model"});
}

/// A weight of the merged model: its name in the file, its full name and its value before the merge.
struct MergedWeight {
  std::string name, full;
  ConstTensor base;
};

bool changes_apart(const AdapterDeltas& deltas) {
  const bool embedding = deltas.changes(kEmbeddingWeight), head = deltas.changes(kHeadWeight);
  if (embedding && head) return !deltas.config().ensure_weight_tying;
  return embedding || head;
}

/// The weights of a model folder to merge into. If adapters change a tied head or embedding without the other, the head
/// becomes a separate weight.
class MergedModel {
 public:
  MergedModel(const fs::path& folder, const std::deque<WeightedDeltas>& adapters)
      : config_(read_json(folder / "config.json")), source_(folder), model_(load_model_config(folder)) {
    if (!source_.unusable().empty()) (void)source_.at(source_.unusable().begin()->first);  // throws the reason
    has_own_head_ = untie_by_weights(model_, folder);
    const bool tied = model_.tie_word_embeddings;
    untied_ = tied && std::any_of(adapters.begin(), adapters.end(),
                                  [](const WeightedDeltas& a) { return changes_apart(a.deltas); });
    const std::string embedding = weight_in(source_, kEmbeddingWeight, model_);
    for (const auto& [name, tensor] : source_.tensors())
      if (name == embedding)
        weights_.push_back({name == kHeadWeight ? kEmbeddingWeight : name, kEmbeddingWeight, tensor});
      else if ((!tied || name != kHeadWeight) && !(model_.fp8 && is_fp8_part(name)))
        weights_.push_back({name, full_name(source_, name), tensor});
    if (untied_) weights_.push_back({kHeadWeight, kHeadWeight, source_.at(embedding)});
    if (untied_ || has_own_head_) config_["tie_word_embeddings"] = false;
    if (model_.fp8) config_.erase(kQuantization);
  }

  /// Whether the folder has a separate head although its config.json ties it to the embedding.
  bool has_own_head() const { return has_own_head_; }
  const SafetensorsReader& source() const { return source_; }
  const std::vector<MergedWeight>& weights() const { return weights_; }
  /// The type of a weight, after the expansion of FP8.
  DType dtype_of(const MergedWeight& w) const {
    return w.base.dtype == DType::f8_e4m3 ? expanded_dtype(model_) : w.base.dtype;
  }
  std::vector<float> values_of(Ctx& ctx, const MergedWeight& w) const {
    std::vector<float> values(static_cast<std::size_t>(w.base.numel()));
    const Tensor in_f32 = view_of(std::span(values), w.base.shape);
    if (w.base.dtype == DType::f8_e4m3)
      ops::run_cpu(ctx, ops::Copy{.y = store(in_f32), .x = DenseWeight(ctx, source_, w.name, &model_).values()});
    else
      ops::run_cpu(ctx, ops::Copy{.y = store(in_f32), .x = w.base});
    return values;
  }
  /// The text of config.json, unchanged if no value changes.
  std::string config_text(const MergeOptions& options) const {
    Json config = config_;
    const char* key = config.contains("dtype") ? "dtype" : "torch_dtype";
    if (options.dtype) config[key] = name_of(*options.dtype);
    const bool changed = untied_ || has_own_head_ || model_.fp8 || config != config_;
    return changed ? dump_json(config, 2) + "\n" : read_text(options.model / "config.json");
  }

 private:
  Json config_;
  SafetensorsReader source_;
  ModelConfig model_;
  std::vector<MergedWeight> weights_;
  bool untied_ = false, has_own_head_ = false;
};

// Refuses an incomplete adapter file, which would be merged only partly.
void require_whole(const MergedModel& model, const AdapterDeltas& deltas) {
  std::vector<std::string> missing;
  for (const MergedWeight& w : model.weights())
    if (deltas.targets(w.full) && !deltas.changes(w.full)) missing.push_back(w.full);
  if (missing.empty()) return;
  constexpr std::size_t kNamed = 4;
  const std::string more = missing.size() > kNamed ? fmt::format(" and {} more", missing.size() - kNamed) : "";
  missing.resize(std::min(missing.size(), kNamed));
  fail(ErrorKind::input, {.cause = fmt::format("the adapter has no tensors for {}{}, which its config names",
                                               fmt::join(missing, ", "), more),
                          .place = deltas.folder().string(),
                          .remedy = "the adapter is incomplete: save or copy it again"});
}

void require_fit(const MergedModel& model, AdapterDeltas& deltas) {
  constexpr const char* kRemedy = "use an adapter that was trained on this model";
  std::map<std::string, Shape> shapes;
  for (const MergedWeight& w : model.weights()) shapes[w.full] = w.base.shape;
  const std::map<std::string, Shape> changed = deltas.shapes();
  for (const auto& [name, shape] : changed) {
    const auto weight = shapes.find(name);
    if (weight == shapes.end() && name == kHeadWeight) continue;  // tied: the same as the embedding
    if (weight == shapes.end() && !deltas.replaces(name)) {
      deltas.leave_out(name);
      continue;
    }
    if (weight == shapes.end())
      fail(ErrorKind::input, {.cause = fmt::format("the adapter changes {}, which the model does not have", name),
                              .place = deltas.folder().string(),
                              .remedy = kRemedy});
    if (!(weight->second == shape))
      fail(ErrorKind::input,
           {.cause = fmt::format("the adapter changes a weight of shape {}, but the model's has shape {}",
                                 to_string(shape), to_string(weight->second)),
            .place = fmt::format("{}: {}", deltas.folder().string(), name),
            .remedy = kRemedy});
  }
  require_whole(model, deltas);
  require_effect(deltas);
}

// DoRA defines row norms for the sum with a single adapter.
void require_addable(const std::deque<WeightedDeltas>& adapters) {
  for (const WeightedDeltas& a : adapters)
    if (a.deltas.config().dora && (adapters.size() > 1 || a.weight != 1))
      fail(ErrorKind::usage, {.cause = "an adapter with DoRA can only be merged alone and with weight 1",
                              .place = a.deltas.folder().string(),
                              .remedy = "merge it first, then train on the result or merge other adapters into it"});
}

struct MergeRun {
  Ctx& ctx;
  const MergedModel& model;
  const std::deque<WeightedDeltas>& adapters;
  std::optional<DType> dtype;
  MergeReport squares = {};  // sums of squares until the end

  bool changes(const MergedWeight& w) const {
    return std::any_of(adapters.begin(), adapters.end(),
                       [&](const WeightedDeltas& a) { return a.deltas.changes(w.full); });
  }
};

std::vector<float> values_of(Ctx& ctx, ConstTensor t) {
  std::vector<float> values(static_cast<std::size_t>(t.numel()));
  ops::run_cpu(ctx, ops::Copy{.y = store(view_of(std::span(values), t.shape)), .x = t});
  return values;
}

double squared_difference(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  return sum;
}

// W with the changes of all adapters.
std::vector<float> merged_values(const MergeRun& run, const MergedWeight& w, std::vector<float> sum) {
  const Tensor in_f32 = view_of(std::span(sum), w.base.shape);
  double kept = 1;  // remaining share of W: replaced weights take their share
  for (const WeightedDeltas& a : run.adapters)
    if (a.deltas.replaces(w.full)) kept -= a.weight;
  if (kept != 1)
    for (float& v : sum) v = kept == 0 ? 0 : static_cast<float>(kept) * v;
  for (const WeightedDeltas& a : run.adapters) a.deltas.add_to(run.ctx, w.full, in_f32, a.weight);
  return sum;
}

void require_finite(const MergedWeight& w, std::span<const float> exact, std::span<const float> rounded) {
  for (std::size_t i = 0; i < exact.size(); ++i)
    if (std::isfinite(exact[i]) && !std::isfinite(rounded[i]))
      fail(ErrorKind::input, {.cause = fmt::format("{} is out of range for the type of the merged weights", exact[i]),
                              .place = w.full,
                              .remedy = "choose --dtype bfloat16 or float32"});
}

void append_merged(MergeRun& run, const MergedWeight& w, DType dtype, const Append& append) {
  const std::vector<float> base = run.model.values_of(run.ctx, w);
  std::vector<float> sum = run.changes(w) ? merged_values(run, w, base) : base;
  run.squares.update += squared_difference(sum, base);
  if (dtype == DType::f32) return append(std::as_bytes(std::span(sum)));
  std::vector<std::byte> memory(sum.size() * size_of(dtype));
  const Tensor rounded{memory.data(), dtype, w.base.shape, {}};
  ops::run_cpu(run.ctx, ops::Copy{.y = store(rounded), .x = view_of(std::span(sum), w.base.shape)});
  const std::vector<float> kept = values_of(run.ctx, rounded);
  require_finite(w, sum, kept);
  if (run.changes(w)) run.squares.rounding += squared_difference(kept, sum);
  append(memory);
}

double unit_roundoff(DType dtype) {
  if (dtype == DType::bf16) return 0x1p-8;
  return dtype == DType::f16 ? 0x1p-11 : 0x1p-24;
}

TensorSource merged_source(MergeRun& run, const MergedWeight& w) {
  const DType stored = run.model.dtype_of(w), dtype = is_float(stored) ? run.dtype.value_or(stored) : stored;
  run.squares.unit = std::max(run.squares.unit, unit_roundoff(dtype));
  return {.name = w.name, .dtype = dtype, .shape = w.base.shape, .produce = [&run, &w, dtype](const Append& append) {
            if (run.changes(w) || dtype != w.base.dtype)
              append_merged(run, w, dtype, append);
            else
              append({w.base.data, w.base.bytes()});
            run.model.source().release(w.base);
          }};
}

/// The folder of the first adapter for which `has` is true, else the model's.
template <class Has>
fs::path first_with(const MergeOptions& options, const Has& has) {
  for (const MergedAdapter& a : options.adapters)
    if (has(a.folder)) return a.folder;
  return options.model;
}

/// Special tokens of a folder that are missing or different in the model's folder.
NamedTokens other_tokens(const fs::path& folder, const fs::path& model) {
  const NamedTokens theirs = special_tokens(folder), before = special_tokens(model);
  NamedTokens others;
  for (const char* name : {"eos_token", "pad_token"})
    if (const auto it = theirs.find(name);
        it != theirs.end() && (!before.contains(name) || before.at(name) != it->second))
      others.insert(*it);
  return others;
}

// Writes the other files of the model folder, with tokenizer and chat template that the adapter was trained with.
void write_companions(const MergeOptions& options, const fs::path& to) {
  const fs::path words = first_with(options, has_tokenizer), chat = first_with(options, has_chat_template);
  copy_generation_config(options.model, to);
  copy_tokenizer_files(words, to);
  if (chat == words)
    copy_chat_templates(chat, to);
  else
    write_chat_templates(chat_template_sources(chat), to);
  NamedTokens others = other_tokens(words, options.model);
  if (others.empty()) return;
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(words);
  std::erase_if(others, [&](const auto& token) { return !tokenizer->id_of(token.second); });
  write_named_tokens(others, *tokenizer, to);
}

// Names of experts in the model's files, for an adapter on experts.
ExpertNames expert_names(const fs::path& model, const fs::path& adapter) {
  const std::string type = read_json(model / "config.json").value("model_type", "");
  if (std::ranges::none_of(families(), [&](const Family* f) { return f->model_type == type; })) return {};
  const ModelConfig config = load_model_config(model);
  require_expert_parameters(load_lora_config(adapter), config, adapter);
  if (!config.experts) return {};
  if (!config.experts->named_apart && !load_lora_config(adapter).target_parameters.empty())
    fail(ErrorKind::input,
         {.cause = fmt::format("adapters on experts of {} (\"target_parameters\") cannot be merged yet, because "
                               "its files store all experts in one tensor",
                               config.model_type),
          .place = adapter.string(),
          .remedy = "use PEFT's merge_and_unload"});
  return config.experts->names;
}

}  // namespace

MergeReport merge_adapters(Ctx& ctx, const MergeOptions& options) {
  check_folders(options);
  std::deque<WeightedDeltas> adapters;
  for (const MergedAdapter& a : options.adapters)
    adapters.push_back({AdapterDeltas(a.folder, expert_names(options.model, a.folder)), a.weight});
  require_addable(adapters);
  const MergedModel model(options.model, adapters);
  if (model.has_own_head() && options.log) warn_of_untied(*options.log, options.model);
  for (WeightedDeltas& a : adapters) {
    require_fit(model, a.deltas);
    if (options.log) warn_of_ignored(*options.log, a.deltas.folder(), a.deltas.ignored());
  }
  MergeRun run{ctx, model, adapters, options.dtype};
  std::vector<TensorSource> tensors;
  for (const MergedWeight& w : model.weights()) tensors.push_back(merged_source(run, w));
  PendingModel output(options.output, "qtrain merge");
  StoppableJob job(options.log, {.unit = "merging", .total = bytes_of(tensors), .counted = false});
  write_sharded(output.folder(), watched(std::move(tensors), job));
  write_file(output.folder() / "config.json", model.config_text(options));
  write_companions(options, output.folder());
  output.commit(options.as);
  return {std::sqrt(run.squares.update), std::sqrt(run.squares.rounding), run.squares.unit};
}

bool explained_by_rounding(const MergeLosses& losses, const MergeReport& report) {
  if (!std::isfinite(losses.adapter) && !std::isfinite(losses.merged)) return true;
  constexpr double kOrderOfSums = 1e-4, kUnits = 8, kShares = 2;
  const double scale = std::max(1.0, std::abs(losses.adapter));
  const double lost = losses.base ? report.lost() * std::abs(*losses.base - losses.adapter) : 0;
  return std::abs(losses.merged - losses.adapter) <= (kOrderOfSums + kUnits * report.unit) * scale + kShares * lost;
}

}  // namespace qtrain
