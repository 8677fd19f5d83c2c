#include "train/setup/model_setup.h"

#include <fmt/format.h>

#include "core/formats/weight_files.h"
#include "core/plural.h"
#include "core/utf8.h"
#include "hub/cache.h"
#include "kernels/fp8.h"
#include "model/adapter_init/converted_adapter.h"
#include "model/hf_folder.h"
#include "model/model_config.h"
#include "model/model_source.h"
#include "model/tied_head.h"
#include "train/setup/adapter_names.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

// GPUs store activations in the type they multiply in; CPUs gain little from narrow ones.
DType activation_dtype(const ComputePlan& compute) {
  if (compute.device.kind == DeviceKind::cpu) return DType::f32;
  if (compute.matmul == MatmulPrecision::f16) return DType::f16;
  return compute.matmul == MatmulPrecision::bf16 ? DType::bf16 : DType::f32;
}

DType memory_dtype(const ModelRequest& request, const TransformerOptions& o) {
  DType wanted = request.dtype == "auto" ? o.config.dtype : dtype_named(request.dtype);
  // Unquantized tensors keep the folder's type: a wider one would only take memory.
  if (o.quantization && size_of(o.config.dtype) < size_of(wanted)) wanted = o.config.dtype;
  const bool wider = wanted == DType::f16 && o.activation_dtype != DType::f16;  // f16 can only be multiplied directly
                                                                                // with f16 activations
  return wider ? DType::f32 : wanted;
}

// The type that quantized weights are dequantized to, which is the one they are multiplied in.
DType dense_dtype(const ComputePlan& compute) {
  if (compute.device.kind == DeviceKind::cuda) return activation_dtype(compute);
  return compute.matmul == MatmulPrecision::bf16 ? DType::bf16 : DType::f32;
}

std::optional<Quantization> quantization_for(const ModelRequest& request, const ModelSetup& setup,
                                             const ModelConfig& config) {
  std::optional<Quantization> how = request.quantization;
  if (how) how->source = setup.saved_dtype;
  if (config.quantization) {
    if (how && (how->fp8 || how->bnb.bits != config.quantization->bits))
      fail(ErrorKind::usage, {.cause = "the weights in the folder are quantized differently than the config asks for",
                              .place = setup.source.string(),
                              .remedy = "remove load_in_4bit, load_in_8bit and load_in_fp8: the folder decides"});
    how = setup.random_init ? Quantization{.bnb = *config.quantization} : quantization_of_folder(config, setup.source);
  }
  if (how && how->fp8 && config.fp8 && !setup.random_init) how->fp8 = fp8_of_folder(config, setup.source);
  if (how && request.base == Update::trained)
    fail(ErrorKind::usage, {.cause = "quantized weights cannot be trained",
                            .place = setup.source.string(),
                            .remedy = "train an adapter (use_peft=true), or do not quantize (load_in_4bit=false, or a "
                                      "folder with dense weights)"});
  return how;
}

std::optional<Fp8Recipe> fp8_recipe(const ModelRequest& request, const ComputePlan& compute) {
  if (!request.fp8 || compute.device.kind != DeviceKind::cuda || size_of(activation_dtype(compute)) != 2) return {};
  if (*request.fp8 == Fp8RecipeChoice::automatic)
    return compute.has_fp8_blocks() ? Fp8Recipe::blockwise : Fp8Recipe::tensorwise;
  return *request.fp8 == Fp8RecipeChoice::blockwise ? Fp8Recipe::blockwise : Fp8Recipe::tensorwise;
}

std::optional<LoraPlusRates> loraplus_rates(const Config& config) {
  const LoraSection& s = config.lora;
  const double peak = config.training.learning_rate;
  if (!s.loraplus_lr_ratio) return {};
  return LoraPlusRates{.b = *s.loraplus_lr_ratio, .embedding = peak > 0 ? s.loraplus_lr_embedding / peak : 1};
}

constexpr std::int64_t kRanksOfAMachine = -1;  // value of zero_group_size: all ranks of a machine

// Number of ranks that training state is sharded across.
int group_size(const RunSection& run, int ranks) {
  if (run.zero_group_size == 0) return ranks;
  const std::int64_t size = run.zero_group_size == kRanksOfAMachine ? run.nproc : run.zero_group_size;
  if (size > ranks || ranks % size != 0)
    fail(ErrorKind::usage,
         {.cause = fmt::format("training state is sharded across groups of {}, which does not divide the {}",
                               counted(size, "rank"), counted(ranks, "rank")),
          .place = "zero_group_size",
          .remedy = "set it to a divisor of the number of ranks, or to 0"});
  return static_cast<int>(size);
}

Sharding sharding_of(const Config& config, int rank, int all) {
  const int ranks = config.run.zero_stage == 0 ? all : group_size(config.run, all);
  if (ranks == 1 && !config.training.weight_offload) return {};
  const std::shared_ptr<const UpdateRule> rule = make_rule(optimizer_options(config.training));
  return {.stage = static_cast<ZeroStage>(config.run.zero_stage),
          .ranks = ranks,
          .rank = rank % ranks,
          .replicas = all / ranks,
          .cut = [rule](const ParamSpec& param) { return rule->cut(param); },
          .buffers = config.run.overlap_comm ? 2 : 1,
          .separate_sums = config.run.deterministic_reduce,
          .on_host = config.training.weight_offload};
}

// Weights kept on the host reach a GPU like those of other ranks: block by block. GPUs may have autotuned different
// GEMM algorithms and would compute different updates, so parameters updated with GEMMs are updated by one rank of a
// group.
Sharding sharding_on(Device device, const ModelRequest& request) {
  Sharding sharding = request.sharding;
  const bool on_gpu = device.kind == DeviceKind::cuda;
  sharding.on_host = sharding.on_host && on_gpu;
  if (sharding.on_host) sharding.stage = ZeroStage::weights;
  if (sharding.ranks == 1 && !sharding.on_host) return {};
  if (on_gpu && sharding.ranks > 1 && request.update_multiplies)
    sharding.stage = std::max(sharding.stage, ZeroStage::optimizer);
  sharding.replicas_agree = !on_gpu || !request.update_multiplies;
  return sharding;
}

// Refuses what a rank cannot compute from its part of the tokens alone.
void require_shareable(const TransformerOptions& o) {
  if (!o.context.is_shared()) return;
  const std::string place = "context_parallel_size";
  if (o.lora && o.lora->dropout > 0)
    fail(ErrorKind::usage,
         {.cause = fmt::format(
              "lora_dropout is {}, but the masks of ranks that share tokens would differ from those of one rank",
              o.lora->dropout),
          .place = place,
          .remedy = "set lora_dropout to 0, or context_parallel_size to 1"});
  if (o.config.is_balanced())
    fail(ErrorKind::usage, {.cause = "the router loss needs all tokens of a micro-batch, but ranks share them",
                            .place = place,
                            .remedy = "set router_aux_loss_coef to 0, or context_parallel_size to 1"});
}

// The same rules as PEFT's create_loraplus_optimizer.
void set_rates(ParamStore& adapter, const LoraPlusRates& rates) {
  for (Param& p : adapter.all()) {
    const std::string& name = p.spec.name;
    if (name.find(".lora_embedding_") != std::string::npos)
      p.spec.learning_rate = rates.embedding;
    else if (name.find(".lora_B.") != std::string::npos || p.spec.shape.rank == 1)
      p.spec.learning_rate = rates.b;
  }
}

// Factors that start from the base weights need their values from before quantization.
void require_readable(const LoraConfig& lora, const TransformerOptions& o, const fs::path& source) {
  const bool are_codes =
      o.config.quantization.has_value() || (o.quantization && o.quantization->fp8 && o.quantization->fp8->of_files);
  if (!lora.init.reads_base() || !are_codes) return;
  fail(ErrorKind::usage,
       {.cause = fmt::format("init_lora_weights {} needs unquantized weights, but those of the folder are quantized",
                             lora.init.json().dump()),
        .place = source.string(),
        .remedy = "name the model that they were made from, with load_in_4bit or load_in_8bit if you like"});
}

/// For PEFT: a branch may move, so the commit is named too.
void name_base(LoraConfig& lora, const fs::path& source, const std::string& given) {
  const auto repo = repo_of_snapshot(source);
  lora.base_model = repo.value_or(given);
  if (repo) lora.base_revision = (source.has_filename() ? source : source.parent_path()).filename().string();
}

}  // namespace

LoraConfig lora_from(const LoraSection& s) {
  LoraConfig lora{
      .r = s.lora_r, .alpha = s.lora_alpha, .dropout = s.lora_dropout, .rslora = s.use_rslora, .dora = s.use_dora};
  if (!s.lora_target_modules.empty()) lora.targets = s.lora_target_modules;
  if (s.exclude_modules.size() == 1 && is_module_pattern(s.exclude_modules.front()))
    lora.exclude_pattern = s.exclude_modules.front();
  else
    lora.exclude_modules = s.exclude_modules;
  lora.layers_to_transform = s.layers_to_transform;
  lora.layers_pattern = s.layers_pattern;
  std::erase(lora.exclude_modules, "");
  std::erase(lora.layers_pattern, "");
  lora.modules_to_save = s.lora_modules_to_save;
  lora.ensure_weight_tying = s.ensure_weight_tying;
  lora.init = s.init_lora_weights;
  // Values that rules.yaml rejects are skipped here, so that further problems can be found.
  for (const auto& [module, rank] : s.rank_pattern.items())
    if (rank.is_number_integer() && rank > 0 && rank <= LoraConfig::kMaxRank)
      lora.rank_pattern.emplace_back(module, rank);
  for (const auto& [module, alpha] : s.alpha_pattern.items())
    if (alpha.is_number() && alpha > 0) lora.alpha_pattern.emplace_back(module, alpha);
  return lora;
}

void apply_router_loss(const RouterLossRequest& request, ModelConfig& model) {
  const bool trl = request.mode == RouterLossMode::trl;
  if (!model.experts) {
    if (trl && request.coefficient.value_or(0) != 0)
      fail(ErrorKind::usage, {.cause = "router_aux_loss_coef applies only to mixture-of-experts models",
                              .place = model.model_type,
                              .remedy = "remove the key"});
    return;
  }
  ExpertsConfig& e = *model.experts;
  const bool otherwise = trl || request.coefficient.has_value() || e.is_balanced;
  e.balance_coefficient = request.coefficient.value_or(e.balance_coefficient);
  e.is_balanced = request.is_on.value_or(otherwise) && e.balance_coefficient != 0;
  if (!trl && !request.coefficient && !request.is_on) return;
  model.json["router_aux_loss_coef"] = e.balance_coefficient;
  model.json["output_router_logits"] = e.is_balanced;
}

TextFolder load_text_folder(const ModelSetup& setup) {
  return load_text_folder(setup.adapter && has_tokenizer(*setup.adapter) ? *setup.adapter : setup.source);
}

ModelRequest training_request(const Config& config, int rank, int ranks) {
  ModelRequest r{.model = config.model.model_name_or_path,
                 .dtype = config.model.dtype,
                 .random_init = config.model.random_init,
                 .quantization = quantization_asked(config.quant)};
  if (config.training.fp8) r.fp8 = config.training.fp8_recipe;
  r.fp8_forward = config.training.fp8_forward;
  if (config.model.adapter_name_or_path)
    r.adapter = *config.model.adapter_name_or_path;
  else if (config.lora.use_peft)
    r.lora = lora_from(config.lora);
  const bool adapter = r.adapter || r.lora;
  r.base = adapter ? Update::frozen : Update::trained;
  r.adapter_update = Update::trained;
  r.rates = loraplus_rates(config);
  r.router_loss = {.coefficient = config.model.router_aux_loss_coef,
                   .is_on = config.model.output_router_logits,
                   .mode = config.model.router_aux_loss_mode};
  if (trains_bf16(optimizer_options(config.training))) r.trained_dtype = DType::bf16;
  r.sharding = sharding_of(config, rank, ranks);
  r.update_multiplies = multiplies_bf16(optimizer_options(config.training));
  const int sharing = static_cast<int>(config.run.context_parallel_size);
  r.context = {.ranks = sharing, .rank = rank % sharing, .key_heads = config.run.context_parallel_heads};
  return r;
}

std::optional<Quantization> quantization_asked(const QuantSection& section) {
  if (!section.load_in_4bit && !section.load_in_8bit && !section.load_in_fp8) return {};
  Quantization how{.blocksize = section.bnb_4bit_blocksize};
  if (section.load_in_fp8) how.fp8.emplace();
  how.bnb.bits = section.load_in_4bit ? BnbConfig::Bits::four : BnbConfig::Bits::eight;
  how.bnb.quant_type = section.bnb_4bit_quant_type == "nf4" ? FourBit::nf4 : FourBit::fp4;
  how.bnb.double_quant = section.bnb_4bit_use_double_quant;
  how.bnb.skip_modules = section.llm_int8_skip_modules;
  return how;
}

ModelSetup set_up_model(const ComputePlan& compute, const ModelRequest& request) {
  const fs::path path = model_path(request.model);
  TransformerOptions o{.config = load_model_config(path),
                       .activation_dtype = activation_dtype(compute),
                       .base = request.base,
                       .lora = request.lora,
                       .adapter = request.adapter_update,
                       .sharding = sharding_on(compute.device, request),
                       .context = request.context};
  o.fp8 = fp8_recipe(request, compute);
  o.fp8_forward = request.fp8_forward;
  if (request.router_loss) apply_router_loss(*request.router_loss, o.config);
  ModelSetup setup{.source = model_folder(request.model)};
  setup.random_asked = request.random_init;
  setup.random_init = request.random_init || !has_weights(setup.source);
  setup.untied = !setup.random_init && untie_by_weights(o.config, setup.source);
  setup.saved_dtype = request.dtype == "auto" ? o.config.dtype : dtype_named(request.dtype);
  o.quantization = quantization_for(request, setup, o.config);
  if (o.has_fp8_blocks() && o.quantization && o.quantization->fp8 && !o.quantization->fp8->of_files)
    o.quantization->fp8->block = {ops::kFp8Block, ops::kFp8Block};
  o.dense_dtype = dense_dtype(compute);
  o.weight_dtype = memory_dtype(request, o);
  o.trained_dtype = request.trained_dtype;
  if (request.adapter) {
    setup.adapter = *request.adapter;
    o.lora = load_lora_config(*setup.adapter);
    require_expert_parameters(*o.lora, o.config, *setup.adapter);
  }
  if (request.lora) require_adapter_names(*request.lora, o.config);
  if (request.lora) o.lora = for_model(*request.lora, o.config);
  require_shareable(o);
  if (request.lora) require_readable(*request.lora, o, setup.source);
  if (o.lora && o.lora->base_model.empty()) name_base(*o.lora, setup.source, request.model);
  setup.model = std::make_unique<Transformer>(compute.device, std::move(o));
  if (request.rates) set_rates(setup.model->adapter(), *request.rates);
  return setup;
}

std::optional<std::string> advice_on_weights(const ModelSetup& setup) {
  if (!setup.random_init) return {};
  if (setup.random_asked) return {};
  if (setup.model->options().base == Update::frozen)
    fail(ErrorKind::input, {.cause = "the model has no weights, and only training all weights can start without them",
                            .place = setup.source.string(),
                            .remedy = "download model.safetensors, which is missing"});
  return fmt::format(
      "{} has no weights: the model starts from random weights; set random_init=true if this is intended",
      setup.source.string());
}

namespace {

// Fills the factors of an adapter that the base weights depend on from a file. Returns whether it could be read.
bool load_factors(Ctx& ctx, Transformer& model, const std::optional<fs::path>& file) {
  if (!file || !model.options().lora || !model.options().lora->init.reads_base()) return false;
  try {
    load_adapter_file(ctx, model, *file);
    return true;
  } catch (const Error& e) {  // whoever needs the file reports it
    if (e.kind() != ErrorKind::input) throw;
    return false;
  }
}

void tell_of_factors(const BaseChange& change, const LoraInit& init, Log& log) {
  if (change.computed() > 0)
    log.info("init_lora_weights {}: the factors of {} come from the base weights", init.json().dump(),
             counted(change.computed(), "layer"));
}

}  // namespace

void load_weights(Ctx& ctx, Runner& runner, const WeightSource& source, Log& log) {
  const ModelSetup& setup = source.setup;
  Transformer& model = runner.model();
  const std::optional<fs::path> adapter = source.adapter ? source.adapter : setup.adapter;
  if (!adapter) model.adapter().initialize(ctx, source.seed);
  const bool known = load_factors(ctx, model, adapter ? adapter : source.resumed);
  if (source.base_is_there) {
    runner.values_changed();
  } else if (!source.weights && setup.random_init) {
    if (model.options().base == Update::frozen) log.info("the model starts from random weights, seed {}", source.seed);
    runner.initialize_weights(ctx, source.seed);
  } else {
    const fs::path path = source.weights.value_or(setup.source);
    if (setup.untied) warn_of_untied(log, setup.source);
    BaseChange change(ctx, model,
                      {.from = known ? BaseChange::From::known : BaseChange::From::weights, .seed = source.seed});
    warn_of_ignored(log, path, load_base_weights(ctx, runner, path, &change));
    if (model.options().lora) tell_of_factors(change, model.options().lora->init, log);
  }
  if (adapter && model.options().lora)
    for (const std::string& name : idle_parameters(*model.options().lora, model.config()))
      log.warn("{}: \"target_parameters\" \"{}\" matches no parameter of the model", one_line(adapter->string()), name);
  runner.copies().fill_dense(ctx, model.params());
  if (!adapter) runner.initialize_magnitudes(ctx);
  if (adapter && model.options().lora) warn_of_ignored(log, *adapter, load_adapter(ctx, runner, *adapter));
  runner.copies().fill_operands(ctx);
}

void load_trained_adapter(Ctx& ctx, Runner& runner, const ModelSetup& setup, const fs::path& file) {
  Transformer& model = runner.model();
  const ParamStore& initial = model.params().adapter().initial();
  const auto values = [&] {
    std::vector<std::byte> all;
    for (const Param& p : initial.all()) all.insert(all.end(), p.value.data, p.value.data + p.value.bytes());
    return all;
  };
  const std::vector<std::byte> before = values();
  load_adapter_file(ctx, model, file);
  if (values() == before) return;
  BaseChange change(ctx, model, {.from = BaseChange::From::known});
  load_base_weights(ctx, runner, setup.source, &change);
  runner.copies().fill_dense(ctx, model.params());
}

}  // namespace qtrain
