#include <algorithm>
#include <array>

#include "config/keys.h"

namespace qtrain {
namespace {

constexpr bool kRefused = true, kRemarked = false;

// Neutral values are compared as JSON; null is always neutral.
constexpr auto kInertKeys = std::to_array<InertKey>({
    // how things are computed: always the one way there is here
    {"use_unsloth", kRemarked, "[false]", "the program has its own kernels"},
    {"provider", kRemarked, "[]", "the program has its own kernels"},
    {"compute_specs", kRemarked, "[]", "nothing depends on a hardware profile"},
    {"use_liger_kernel", kRemarked, "[false]", "the loss and the norms are always fused"},
    {"liger_kernel_config", kRemarked, "[]", "the loss and the norms are always fused"},
    {"attn_implementation", kRemarked, "[]", "there is one attention kernel"},
    {"use_sdpa", kRemarked, "[]", "there is one attention kernel"},
    {"flash_attention_2", kRemarked, "[]", "there is one attention kernel"},
    {"use_flash_attention_2", kRemarked, "[]", "there is one attention kernel"},
    {"memory_efficient_attention", kRemarked, "[]", "there is one attention kernel"},
    {"torch_compile", kRemarked, "[false]", "there is no Python to compile; use_cuda_graphs is on by itself"},
    {"torch_compile_backend", kRemarked, "[]", "there is no Python to compile"},
    {"torch_compile_mode", kRemarked, "[]", "there is no Python to compile"},
    {"cuda_graph_warmup_steps", kRemarked, "[]", "each size of micro-batch runs once before it is recorded"},
    {"activation_checkpointing_kwargs", kRemarked, "[]", "recomputation has no options"},
    {"gradient_checkpointing_kwargs", kRemarked, "[]", "recomputation has no options"},
    {"padding_free", kRemarked, "[false]", "batches are never padded"},
    {"pad_to_multiple_of", kRemarked, "[\"auto\"]", "batches are never padded"},
    {"use_liger", kRemarked, "[false]", "the loss and the norms are always fused"},
    {"torchdynamo", kRemarked, "[]", "there is no Python to compile"},
    {"use_reentrant", kRemarked, "[true,false]", "recomputation has no options"},
    {"gradient_checkpointing_use_reentrant", kRemarked, "[true,false]", "recomputation has no options"},
    {"half_precision_backend", kRemarked, "[\"auto\"]", "fp16 and bf16 say how products are computed"},
    {"fp16_backend", kRemarked, "[\"auto\"]", "fp16 and bf16 say how products are computed"},
    {"fp16_opt_level", kRemarked, "[\"O1\"]", "there is no Apex"},
    {"use_ipex", kRemarked, "[false]", "the program has its own kernels"},
    {"use_mps_device", kRefused, "[false]", "there is no backend for Apple GPUs"},
    {"tpu_num_cores", kRefused, "[0]", "there is no backend for TPUs"},
    {"tpu_metrics_debug", kRemarked, "[false]", "there is no backend for TPUs"},
    {"xpu_backend", kRemarked, "[]", "ranks are started by nproc"},
    {"full_determinism", kRemarked, "[false,true]", "runs are always deterministic"},
    {"use_cache", kRemarked, "[false,true]", "training keeps no key/value cache"},
    {"device_map", kRemarked, "[\"auto\"]", "see device and nproc"},
    {"low_cpu_mem_usage", kRemarked, "[true,false]", "weights are always mapped"},
    {"use_kernels", kRemarked, "[false]", "the program has its own kernels"},
    {"trust_remote_code", kRemarked, "[false,true]", "code in a model folder is never run"},
    {"model_revision", kRemarked, "[\"main\"]", "models are local folders"},
    {"revision", kRemarked, "[\"main\"]", "models are local folders"},
    {"cache_dir", kRemarked, "[]", "models are local folders"},
    {"torch_empty_cache_steps", kRemarked, "[]", "memory is planned before the first step"},
    {"skip_memory_metrics", kRemarked, "[true,false]", "memory is always measured"},
    // reading the data
    {"dataset_num_proc", kRemarked, "[]", "rows are tokenized by all threads"},
    {"dataset_streaming", kRemarked, "[false]", "files are mapped, never held whole"},
    {"dataset_config", kRemarked, "[]", "datasets are local files"},
    {"remove_unused_columns", kRemarked, "[true,false]", "only the fields of the row's shape are read"},
    {"length_column_name", kRemarked, "[\"length\"]", "lengths are counted"},
    {"dataloader_pin_memory", kRemarked, "[true,false]", "batches for a GPU always go through pinned memory"},
    {"dataloader_persistent_workers", kRemarked, "[false]", "threads last as long as the run"},
    {"dataloader_multiprocessing_context", kRemarked, "[]", "batches are prepared by threads"},
    {"dataloader_in_order", kRemarked, "[true]", "batches always come in order"},
    {"dispatch_batches", kRemarked, "[false]", "each rank cuts its own batches"},
    {"split_batches", kRefused, "[false]", "per_device_train_batch_size is that of one rank"},
    {"dataset_batch_size", kRemarked, "[1000]", "rows are tokenized one by one"},
    {"num_of_sequences", kRemarked, "[1024]", "rows are packed as packing_strategy says"},
    {"chars_per_token", kRemarked, "[3.6]", "tokens are counted"},
    {"label_names", kRemarked, "[]", "labels are always `labels`"},
    {"ignore_bias_buffers", kRemarked, "[false]", "models have no such buffers"},
    {"dataset_kwargs", kRefused, "[{}]", "rows of input_ids are recognized as prepared"},
    {"dataset_train_split", kRemarked, "[\"train\"]", "splits are told apart by the names of files"},
    {"dataset_test_split", kRemarked, "[\"test\"]", "splits are told apart by the names of files"},
    // the loss
    {"average_tokens_across_devices", kRemarked, "[true]", "the loss is always averaged over all tokens of all ranks"},
    {"loss_type", kRefused, "[\"nll\",\"chunked_nll\"]", "only the negative log-likelihood is available"},
    {"label_smoothing_factor", kRefused, "[0]", "label smoothing is not available"},
    {"neftune_noise_alpha", kRefused, "[]", "NEFTune is not available"},
    {"router_aux_loss_coef", kRefused, "[0]", "mixtures of experts are not available"},
    // the optimizer
    {"optim_target_modules", kRefused, "[]", "optimizers apply to all trained weights"},
    {"auto_find_batch_size", kRefused, "[false]", "memory is planned before the first step"},
    // logging and evaluation
    {"logging_dir", kRemarked, "[]", "event files are in output_dir/runs"},
    {"run_name", kRemarked, "[]", "a run is named by its output_dir"},
    {"logging_nan_inf_filter", kRemarked, "[true,false]", "a NaN is always shown"},
    {"log_level", kRemarked, "[\"passive\",\"info\"]", "see the flag --quiet"},
    {"log_on_each_node", kRemarked, "[true,false]", "rank 0 logs"},
    {"log_level_replica", kRemarked, "[\"warning\"]", "rank 0 logs"},
    {"include_num_input_tokens_seen", kRemarked, "[\"no\",false,true,\"all\"]", "tokens are always counted"},
    {"include_tokens_per_second", kRemarked, "[false,true]", "tokens per second are always logged"},
    {"project", kRemarked, "[\"huggingface\"]", "metrics stay in output_dir"},
    {"trackio_space_id", kRemarked, "[\"trackio\"]", "metrics stay in output_dir"},
    {"trackio_bucket_id", kRemarked, "[]", "metrics stay in output_dir"},
    {"trackio_static_space_id", kRemarked, "[]", "metrics stay in output_dir"},
    {"prediction_loss_only", kRemarked, "[false,true]", "evaluation gives the loss"},
    {"eval_do_concat_batches", kRemarked, "[true,false]", "evaluation gives the loss"},
    {"eval_use_gather_object", kRemarked, "[false]", "evaluation gives the loss"},
    {"eval_accumulation_steps", kRemarked, "[]", "evaluation gives the loss"},
    {"include_for_metrics", kRemarked, "[[]]", "evaluation gives the loss"},
    {"include_inputs_for_metrics", kRemarked, "[false]", "evaluation gives the loss"},
    {"batch_eval_metrics", kRemarked, "[false]", "evaluation gives the loss"},
    {"bf16_full_eval", kRemarked, "[false]", "evaluation computes as training does"},
    {"fp16_full_eval", kRemarked, "[false]", "evaluation computes as training does"},
    {"jit_mode_eval", kRemarked, "[false]", "evaluation computes as training does"},
    {"past_index", kRefused, "[-1]", "models keep no state between batches"},
    {"use_legacy_prediction_loop", kRemarked, "[false]", "evaluation gives the loss"},
    {"sortish_sampler", kRefused, "[false]", "see train_sampling_strategy"},
    {"predict_with_generate", kRemarked, "[false]", "see qtrain eval --generate"},
    {"generation_*", kRemarked, "[]", "see qtrain eval --generate"},
    {"do_train", kRemarked, "[false,true]", "the command says what to do"},
    {"do_eval", kRemarked, "[false,true]", "the command says what to do"},
    {"do_predict", kRemarked, "[false]", "the command says what to do"},
    {"debug", kRemarked, "[\"\",[]]", "see log_level"},
    // checkpoints
    {"save_safetensors", kRefused, "[true]", "weights are only written as safetensors"},
    {"save_on_each_node", kRemarked, "[false]", "rank 0 saves"},
    {"enable_jit_checkpoint", kRemarked, "[false,true]", "a signal always leads to a checkpoint"},
    {"restore_callback_states_from_checkpoint", kRemarked, "[false]", "there are no callbacks"},
    {"ignore_data_skip", kRefused, "[false]", "a resumed run always goes on with the next batch"},
    {"push_to_hub", kRefused, "[false]", "the program does not use the network"},
    {"push_to_hub_*", kRemarked, "[]", "the program does not use the network"},
    {"hub_token", kRemarked, "[]", "the program does not use the network"},
    {"hub_model_id", kRemarked, "[]", "the program does not use the network"},
    {"hub_strategy", kRemarked, "[\"every_save\"]", "the program does not use the network"},
    {"hub_private_repo", kRemarked, "[]", "the program does not use the network"},
    {"hub_always_push", kRemarked, "[false]", "the program does not use the network"},
    {"hub_revision", kRemarked, "[]", "the program does not use the network"},
    // ranks
    {"ddp_backend", kRemarked, "[]", "ranks are started by nproc"},
    {"ddp_timeout", kRemarked, "[1800]", "ranks are started by nproc"},
    {"ddp_find_unused_parameters", kRemarked, "[false]", "ranks are started by nproc"},
    {"ddp_bucket_cap_mb", kRemarked, "[]", "ranks are started by nproc"},
    {"ddp_broadcast_buffers", kRemarked, "[]", "ranks are started by nproc"},
    {"ddp_static_graph", kRemarked, "[]", "ranks are started by nproc"},
    {"local_rank", kRemarked, "[-1]", "ranks are started by nproc"},
    {"accelerator_config", kRemarked, "[]", "ranks are started by nproc"},
    {"ray_scope", kRemarked, "[\"last\"]", "there is no search for hyperparameters"},
    {"sharded_ddp", kRemarked, "[\"\",[],false]", "on one device there is nothing to shard"},
    {"fsdp_min_num_params", kRemarked, "[0]", "on one device there is nothing to shard"},
    {"fsdp_transformer_layer_cls_to_wrap", kRemarked, "[]", "on one device there is nothing to shard"},
    {"mp_parameters", kRemarked, "[\"\"]", "ranks are started by nproc"},
    {"num_processes", kRemarked, "[1]", "ranks are started by nproc"},
    {"num_machines", kRemarked, "[1]", "ranks are started by nproc"},
    {"main_process_port", kRemarked, "[]", "ranks are started by nproc"},
    {"mixed_precision", kRemarked, "[\"no\"]", "see bf16 and fp16"},
    {"env", kRemarked, "[{}]", "the environment is that of the shell"},
    {"parallelism_config", kRefused, "[{}]", "only data parallelism is planned"},
    {"tp_size", kRefused, "[0,1]", "tensor parallelism is not available"},
    // PEFT: LoRA on linear layers
    {"peft_type", kRefused, "[\"LORA\"]", "only LoRA adapters are available"},
    {"task_type", kRefused, "[\"CAUSAL_LM\"]", "only causal language models are available"},
    {"lora_task_type", kRefused, "[\"CAUSAL_LM\"]", "only causal language models are available"},
    {"inference_mode", kRemarked, "[false,true]", "the command says what to do"},
    {"peft_version", kRemarked, "[]", "adapters are read by their keys"},
    {"auto_mapping", kRemarked, "[]", "adapters are read by their keys"},
    {"runtime_config", kRemarked, "[{},{\"ephemeral_gpu_offload\":false}]", "adapters stay where the model is"},
    {"megatron_core", kRemarked, "[\"megatron.core\"]", "models are Hugging Face ones"},
    {"bias", kRefused, "[\"none\"]", "biases are not trained beside an adapter"},
    {"lora_bias", kRefused, "[false]", "adapters have no bias"},
    {"fan_in_fan_out", kRefused, "[false]", "weights are stored [out, in]"},
    {"exclude_modules", kRefused, "[[]]", "name the layers in lora_target_modules"},
    {"target_parameters", kRefused, "[[]]", "adapters are for linear layers"},
    {"lora_target_parameters", kRefused, "[[]]", "adapters are for linear layers"},
    {"layers_to_transform", kRefused, "[[]]", "an adapter is on all layers"},
    {"layers_pattern", kRefused, "[[],\"\"]", "an adapter is on all layers"},
    {"init_lora_weights", kRefused, "[true]", "A is drawn as PEFT does by default and B is zero"},
    {"layer_replication", kRefused, "[]", "layers are not replicated"},
    {"trainable_token_indices", kRefused, "[[]]",
     "single rows of an embedding are not trained: see lora_modules_to_save"},
    {"megatron_config", kRefused, "[]", "models are Hugging Face ones"},
    {"loftq_config", kRefused, "[{}]", "only LoRA and DoRA are available"},
    {"eva_config", kRefused, "[]", "only LoRA and DoRA are available"},
    {"corda_config", kRefused, "[]", "only LoRA and DoRA are available"},
    {"lora_ga_config", kRefused, "[]", "only LoRA and DoRA are available"},
    {"velora_config", kRefused, "[]", "only LoRA and DoRA are available"},
    {"alora_invocation_tokens", kRefused, "[]", "only LoRA and DoRA are available"},
    {"use_qalora", kRefused, "[false]", "only LoRA and DoRA are available"},
    {"qalora_group_size", kRemarked, "[16]", "only LoRA and DoRA are available"},
    {"monteclora_config", kRefused, "[]", "only LoRA and DoRA are available"},
    {"use_bdlora", kRefused, "[]", "only LoRA and DoRA are available"},
    {"arrow_config", kRefused, "[]", "only LoRA and DoRA are available"},
    {"kasa_config", kRefused, "[]", "only LoRA and DoRA are available"},
    {"feedforward_modules", kRefused, "[[]]", "only LoRA adapters are available"},
    // bitsandbytes
    {"quant_method", kRefused, "[\"bitsandbytes\"]", "only bitsandbytes quantization is known"},
    {"bnb_4bit_quant_storage", kRemarked, "[\"uint8\"]", "codes are stored as bytes"},
    {"llm_int8_threshold", kRemarked, "[6.0]", "8-bit inference is not available"},
    {"llm_int8_enable_fp32_cpu_offload", kRemarked, "[false]", "offloading is not available"},
    {"llm_int8_has_fp16_weight", kRemarked, "[false]", "8-bit inference is not available"},
    // parts of expert manifests
    {"test_path", kRemarked, "[]", "the test split is not read while training"},
    {"streaming", kRemarked, "[false]", "files are mapped, never held whole"},
    {"memory_clear_every", kRemarked, "[]", "memory is planned before the first step"},
    {"max_in_memory_samples", kRemarked, "[]", "files are mapped, never held whole"},
    {"use_pretokenized", kRemarked, "[true,false]", "rows of input_ids are recognized"},
    {"prompt_template", kRemarked, "[]", "the model's chat template is used"},
});

}  // namespace

std::span<const InertKey> inert_keys() {
  return kInertKeys;
}

const InertKey* find_inert_in(std::span<const InertKey> keys, std::string_view name) {
  const auto at = std::find_if(keys.begin(), keys.end(), [&](const InertKey& k) {
    return k.name.ends_with('*') ? name.starts_with(k.name.substr(0, k.name.size() - 1)) : k.name == name;
  });
  return at == keys.end() ? nullptr : &*at;
}

const InertKey* find_inert(std::string_view name) {
  return find_inert_in(kInertKeys, name);
}

bool is_neutral(const InertKey& key, const Json& value) {
  if (value.is_null()) return true;
  const Json neutral = Json::parse(key.neutral);
  return std::find(neutral.begin(), neutral.end(), value) != neutral.end();
}

}  // namespace qtrain
