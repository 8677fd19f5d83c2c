#include "app/cli/command_table.h"

#include <algorithm>
#include <array>

#include "app/commands/commands.h"

namespace qtrain {
namespace {

using enum FlagKind;

constexpr Flag kHelp{"help", present, "", "show this help"};
constexpr Flag kJson{"json", present, "", "one JSON document on stdout"};
constexpr Flag kDevice{"device", choice, "cpu|cuda|auto", "where to run"};
constexpr Flag kQuiet{"quiet", present, "", "warnings and errors only"};
constexpr Flag kModel{"model", text, "DIR", "folder of the model"};
constexpr Flag kAdapter{"adapter", text, "DIR", "folder of a LoRA adapter"};
constexpr Flag kDtype{"dtype", choice, "auto|float32|bfloat16|float16",
                      "type of the weights in memory and of GEMMs (default: the folder's)"};
constexpr Flag kLoadIn4Bit{"load_in_4bit", present, "", "quantize the weights to 4 bits (nf4) while loading"};
constexpr Flag kLoadIn8Bit{"load_in_8bit", present, "", "quantize the weights to 8 bits while loading"};
constexpr Flag kMoved{"moved", repeated, "OLD=NEW",
                      "a file or folder that the run read as OLD is NEW now; may be given more than once"};
constexpr Flag kOverwrite{"overwrite", present, "", "replace what is there, though this command has not written it"};
constexpr Flag kThreads{"threads", integer, "N", "worker threads (default: one per processor)"};
constexpr std::string_view kConfig = "CONFIG.json [key=value ...]";

std::vector<Flag> sampling_flags() {
  return {{"max_new_tokens", integer, "N", "stop after so many tokens"},
          {"temperature", number, "T", "0: greedy"},
          {"top_p", number, "P", "sample from the most likely tokens that make up this probability"},
          {"top_k", integer, "K", "sample from the K most likely tokens; 0: all"},
          {"min_p", number, "P", "drop tokens less likely than this share of the most likely one"},
          {"repetition_penalty", number, "X", "above 1: tokens seen before become less likely"},
          {"seed", integer, "N", "seed of the sampling"},
          {"greedy", present, "", "always the most likely token"},
          {"stop", repeated, "TEXT", "end at this text; may be given more than once"},
          {"batch_size", integer, "N", "rows generated together"}};
}

std::vector<Flag> with_sampling(std::vector<Flag> flags) {
  const auto sampling = sampling_flags();
  flags.insert(flags.end(), sampling.begin(), sampling.end());
  return flags;
}

std::vector<Command> training_commands() {
  return {
      {.name = "train",
       .operands = kConfig,
       .summary = "Train as the config says; `qtrain CONFIG.json` is the same",
       .flags = {{"resume", text, "auto|never|DIR",
                  "auto (default): go on from the newest valid checkpoint in output_dir"},
                 {"stop_after", integer, "N",
                  "stop after update N, as a signal would: with a checkpoint, exit code 75"},
                 {"events", text, "FILE", "what happens as it happens, a JSON object a line, in this file or FIFO"},
                 {"overwrite", present, "", "also into an output_dir with the weights of something else than a run"}},
       .min_operands = 1,
       .max_operands = 1,
       .overrides = true,
       .answers_stops = true,
       .run = run_train},
      {.name = "eval",
       .operands = kConfig,
       .summary = "Loss and perplexity over the evaluation rows, of what the config has trained where it is there",
       .flags = {kAdapter,
                 {"base", present, "", "measure what the config begins with, not what it has trained"},
                 {"generate", present, "", "also answer each row greedily and count exact matches"},
                 {"rows", text, "FILE.jsonl", "with --generate: write every row's answer here"},
                 kOverwrite,
                 {"max_new_tokens", integer, "N", "with --generate: longest answer"},
                 {"limit", integer, "N", "only the first N rows"},
                 {"batch_size", integer, "N", "with --generate: rows generated together"}},
       .min_operands = 1,
       .max_operands = 1,
       .overrides = true,
       .run = run_eval},
      {.name = "validate",
       .operands = kConfig,
       .summary = "Check everything that can be checked without training; list all problems",
       .flags = {},
       .min_operands = 1,
       .max_operands = 1,
       .overrides = true,
       .only_reads = true,
       .run = run_validate},
      {.name = "estimate",
       .operands = kConfig,
       .summary = "Memory by component, steps, tokens, time and cost of a run, without touching its device",
       .flags = {{"gpu", text, "NAME", "for this card, which need not be here"},
                 {"cards", present, "", "on all cards: memory, tokens/s and time, one row each"},
                 {"price_per_hour", number, "X", "of the device: adds the cost"},
                 {"mfu", number, "X", "share of a GPU's peak that passes reach: one figure instead of a range"},
                 {"no_data", present, "", "do not read the rows: all are as long as max_length"},
                 {"nodes", integer, "N", "of a run on so many machines: memory and time with each zero_stage"},
                 {"gpus_per_node", integer, "N", "of each (default: nproc, or 8)"},
                 {"network_gbps", number, "X", "Gb/s of each GPU between machines (default: 400 with NVLink 4 and 5)"},
                 {"collectives", choice, "usual|ring|tree", "algorithms of exchanges (default: those of a run)"},
                 {"overlap", choice, "yes|no", "exchanges run beside the computation (default: as in a run)"},
                 {"trace", text, "DIR", "hold the schedule against the timelines (profile) of a run with this config"}},
       .min_operands = 1,
       .max_operands = 1,
       .overrides = true,
       .run = run_estimate},
      {.name = "tune",
       .operands = kConfig,
       .summary = "Measure micro-batches, recompute policies and offloading by short steps; write the fastest",
       .flags = {{"output", text, "FILE.json", "the config with what is fastest (default: CONFIG.tuned.json)"},
                 kOverwrite,
                 {"steps", integer, "N", "steps to measure of each trial (default: 3)"},
                 {"trials", integer, "N", "at most so many (default: 16)"}},
       .min_operands = 1,
       .max_operands = 1,
       .overrides = true,
       .answers_stops = true,
       .run = run_tune},
      {.name = "config",
       .operands = "[CONFIG.json [key=value ...]]",
       .summary = "The resolved config with the origin of each value; without a file, the reference of all keys",
       .flags = {},
       .min_operands = 0,
       .max_operands = 1,
       .overrides = true,
       .only_reads = true,
       .run = run_config},
      {.name = "preprocess",
       .operands = kConfig,
       .summary = "Prepare the training rows and tell about their lengths",
       .flags = {{"dump", text, "FILE.jsonl", "write every training row here"}, kOverwrite},
       .min_operands = 1,
       .max_operands = 1,
       .overrides = true,
       .run = run_preprocess},
      {.name = "launch-script",
       .operands = kConfig,
       .summary = "The file that starts a run under Slurm, Kubernetes or Docker",
       .flags = {{"slurm", present, "", "a script for sbatch"},
                 {"k8s", present, "", "a manifest for kubectl: a PyTorchJob"},
                 {"docker", present, "", "a shell script"}},
       .min_operands = 1,
       .max_operands = 1,
       .overrides = true,
       .only_reads = true,
       .run = run_launch_script},
  };
}

std::vector<Command> model_commands() {
  return {
      {.name = "generate",
       .operands = "--model DIR (--prompt TEXT | --input FILE.jsonl)",
       .summary = "Complete prompts",
       .flags = with_sampling({kModel,
                               kAdapter,
                               kDtype,
                               kLoadIn4Bit,
                               kLoadIn8Bit,
                               {"prompt", text, "TEXT", "one prompt"},
                               {"input", text, "FILE.jsonl", "rows with prompt or messages, and tools beside them"},
                               {"output", text, "FILE.jsonl", "where rows go (default: stdout)"},
                               kOverwrite,
                               {"system", text, "TEXT", "system message before --prompt"},
                               {"raw", present, "", "no chat template"}}),
       .run = run_generate},
      {.name = "chat",
       .operands = "--model DIR",
       .summary = "Talk to a model",
       .flags =
           with_sampling({kModel,
                          kAdapter,
                          kDtype,
                          kLoadIn4Bit,
                          kLoadIn8Bit,
                          {"system", text, "TEXT", "system message"},
                          {"compare", present, "", "with --adapter: the model without it answers each message too"}}),
       .has_result = false,
       .answers_stops = true,
       .run = run_chat},
      {.name = "serve",
       .operands = "--model DIR",
       .summary = "Answer over HTTP as OpenAI's API does, with a page to try a model and its adapters",
       .flags = {kModel,
                 {"adapter", repeated, "[NAME=]DIR",
                  "a LoRA adapter on the model, asked for by its name; as many as needed"},
                 kDtype,
                 kLoadIn4Bit,
                 kLoadIn8Bit,
                 {"host", text, "H", "address to listen on (default: 127.0.0.1); another machine's needs a token"},
                 {"port", integer, "N", "port to listen on (default: 8000); 0: a free one"},
                 {"token", text, "T", "what clients must send as their API key"},
                 {"token_file", text, "FILE", "the same, read from a file"},
                 {"max_context", integer, "N", "tokens of prompt and answer (default: the model's, at most 32768)"},
                 {"max_new_tokens", integer, "N", "of an answer where the request does not say (default: 1024)"},
                 {"max_batch", integer, "N", "answers decoded together (default: 16)"},
                 {"max_queue", integer, "N", "answers that may wait (default: 64)"},
                 {"max_connections", integer, "N", "connections at a time (default: 64)"},
                 {"cache_tokens", integer, "N", "tokens of all answers in the key/value cache (default: by memory)"}},
       .answers_stops = true,
       .run = run_serve},
      {.name = "tokenize",
       .operands = "--model DIR",
       .summary = "Strings to token ids: one JSON string per line in, one JSON array per line out",
       .flags = {kModel,
                 {"input", text, "FILE", "read this file instead of stdin"},
                 {"no_special", present, "", "add no special tokens; with --decode leave them out"},
                 {"decode", present, "", "the other way: arrays of ids in, strings out"}},
       .only_reads = true,
       .run = run_tokenize},
      {.name = "render",
       .operands = "CONFIG [key=value ...] | --model DIR --input FILE.jsonl",
       .summary =
           "The text of each row: of a run's training rows, or by a model's chat template; one JSON string per line",
       .flags = {kModel,
                 {"input", text, "FILE.jsonl", "rows with messages, instead of the config's"},
                 {"add_generation_prompt", present, "", "end with the start of an answer"}},
       .min_operands = 0,
       .max_operands = 1,
       .overrides = true,
       .only_reads = true,
       .run = run_render},
      {.name = "datasets",
       .operands = "DIR",
       .summary = "Training data below a folder: format, row shape, rows, size, readable or why not",
       .flags = {{"text_field", text, "NAME", "the column that holds the text of `text` rows"}},
       .min_operands = 1,
       .max_operands = 1,
       .only_reads = true,
       .run = run_datasets},
      {.name = "import",
       .operands = "FILE.gguf --output DIR",
       .summary = "Turn a GGUF file into a Hugging Face folder",
       .flags = {{"output", text, "DIR", "the folder to write"},
                 kOverwrite,
                 {"dtype", choice, "auto|float32|bfloat16|float16", "type of the weights written"}},
       .min_operands = 1,
       .max_operands = 1,
       .run = run_import},
      {.name = "merge",
       .operands = "--model DIR --adapter DIR --output DIR",
       .summary = "Put LoRA adapters into the 32- or 16-bit weights of their model",
       .flags = {kModel,
                 {"adapter", repeated, "DIR", "folder of a LoRA adapter; more than one are added up"},
                 {"weights", text, "X,...", "how much of each adapter (default: 1)"},
                 {"dtype", choice, "auto|float32|bfloat16|float16",
                  "type of the merged weights (default: the folder's); what rounding loses is said"},
                 {"output", text, "DIR", "the folder to write"},
                 kOverwrite,
                 {"data", text, "FILE.jsonl", "rows to compare the loss of adapter and merged model on"}},
       .run = run_merge},
      {.name = "export",
       .operands = "--model DIR --output FILE.gguf",
       .summary = "Turn a Hugging Face folder, or an adapter, into a GGUF file",
       .flags = {kModel,
                 {"adapter", repeated, "DIR", "write this LoRA adapter of the model instead, for llama.cpp's --lora"},
                 {"merge", present, "", "with --adapter: write the model with the adapter in its weights"},
                 {"output", text, "FILE.gguf", "the file to write"},
                 kOverwrite,
                 {"type", choice, "auto|f32|f16|bf16|q8_0|q4_0|q4_k", "type of the matrices (default: the folder's)"}},
       .run = run_export},
      {.name = "quantize",
       .operands = "--model DIR --output DIR",
       .summary = "Write a model in 4 bits, as bitsandbytes does",
       .flags = {kModel,
                 {"output", text, "DIR", "the folder to write"},
                 kOverwrite,
                 {"quant_type", choice, "nf4|fp4", "values that a code has (default: nf4)"},
                 {"blocksize", integer, "N", "values with one scale: 32, 64, ..., 4096 (default: 64)"},
                 {"double_quant", choice, "true|false", "quantize the scales too (default: true)"},
                 {"compute_dtype", choice, "float32|bfloat16|float16",
                  "type that transformers shall compute in (default: the folder's)"},
                 {"skip_modules", repeated, "NAME", "a linear layer, or part of its name, that stays as it is"}},
       .run = run_quantize},
      {.name = "inspect",
       .operands = "PATH",
       .summary = "What is in a model folder, adapter, checkpoint, safetensors or GGUF file",
       .flags = {{"verify", present, "",
                  "check the hashes of a checkpoint, or of the final model in an output directory"},
                 {"tensors", present, "", "list every tensor"}},
       .min_operands = 1,
       .max_operands = 1,
       .only_reads = true,
       .run = run_inspect},
      {.name = "report",
       .operands = "RUN_DIR",
       .summary = "One page on a run, also while it goes on: curves, speed, memory, samples, config",
       .flags = {{"output", text, "FILE.html", "the page (default: report.html in RUN_DIR)"}, kOverwrite},
       .min_operands = 1,
       .max_operands = 1,
       .run = run_report},
      {.name = "compare",
       .operands = "RUN_DIR RUN_DIR ...",
       .summary = "Runs side by side: final figures, config keys that differ, one page with their curves",
       .flags = {{"output", text, "FILE.html", "the page (default: compare.html)"}, kOverwrite},
       .min_operands = 2,
       .max_operands = 32,
       .run = run_compare},
      {.name = "verify",
       .operands = "RUN_DIR",
       .summary = "Check a run: all its files against their hashes, and steps done again, bit for bit",
       .flags = {{"steps", integer, "N", "do at least so many again, chosen at random (default: 1); 0: none"},
                 {"scratch", text, "DIR", "where there is room for their results (default: the system's)"},
                 {"statement", text, "FILE", "write an in-toto statement about a run that holds"},
                 kMoved,
                 {"earlier", repeated, "STEP:KEY=VALUE",
                  "steps up to this one were done with another value, and the checkpoint there is gone"},
                 kOverwrite},
       .min_operands = 1,
       .max_operands = 1,
       .run = run_verify},
      {.name = "reproduce",
       .operands = "RUN_DIR",
       .summary = "The same run again, from its resolved_config.json, into another folder",
       .flags = {{"output", text, "DIR", "output directory of the new run"}, kMoved},
       .min_operands = 1,
       .max_operands = 1,
       .answers_stops = true,
       .run = run_reproduce},
      {.name = "clean",
       .operands = "OUTPUT_DIR",
       .summary = "List the checkpoints of earlier runs that a run has set aside; with --yes remove them",
       .flags = {{"yes", present, "", "remove what is listed"}},
       .min_operands = 1,
       .max_operands = 1,
       .run = run_clean},
      {.name = "bench",
       .operands = "[FILTER | step [CASE | CONFIG.json [key=value ...]]]",
       .summary = "Measure single ops against what the device reaches in a copy and a GEMM; `step`: the kernels of a "
                  "training step",
       .flags = {{"json", file_or_stdout, "[FILE]", "one JSON document in this file, or on stdout"},
                 kOverwrite,
                 {"dtype", choice, "float32|bfloat16",
                  "of activations and weights (default: float32, on a GPU bfloat16)"},
                 {"small", present, "", "tiny shapes, one round: shows that everything runs, not how fast"},
                 {"nvtx", present, "", "name ops for Nsight Systems and Nsight Compute (NVTX ranges)"}},
       .min_operands = 0,
       .max_operands = 2,
       .overrides = true,
       .answers_stops = true,
       .run = run_bench},
      {.name = "monitor",
       .operands = "",
       .summary = "Watch GPUs, processors, memory, disks and network, alone or beside a run, and say what limits it",
       .flags = {{"pid", integer, "N", "this process and those that it has started"},
                 {"run", text, "DIR", "the output_dir of a run: its process, tokens per second, waiting for data"},
                 {"interval", number, "S", "seconds between samples (default: 1)"},
                 {"duration", number, "S", "end after so many seconds (default: until Ctrl-C)"},
                 {"json", file_or_stdout, "[FILE]", "samples and summary as one document, in this file or on stdout"},
                 kOverwrite},
       .answers_stops = true,
       .run = run_monitor},
      {.name = "doctor",
       .operands = "",
       .summary = "Processor, memory, libraries, devices, and what each missing part costs",
       .flags = {},
       .only_reads = true,
       .run = run_doctor},
      {.name = "completion",
       .operands = "bash|zsh|fish",
       .summary = "Print a completion script for the shell",
       .flags = {},
       .min_operands = 1,
       .max_operands = 1,
       .has_result = false,
       .run = run_completion},
      {.name = "man",
       .operands = "",
       .summary = "Print the man page: `qtrain man > qtrain.1`, then `man ./qtrain.1`",
       .flags = {},
       .has_result = false,
       .run = run_man},
  };
}

bool has_flag(const Command& c, std::string_view name) {
  return std::any_of(c.flags.begin(), c.flags.end(), [&](const Flag& f) { return f.name == name; });
}

/// Whether a flag that all commands share does something in this one.
bool has_effect(const Flag& f, const Command& c) {
  constexpr std::array<std::string_view, 3> kComputing{"generate", "chat", "serve"},
      kConverting{"merge", "quantize", "export"};
  const auto is_of = [&](const auto& names) { return std::find(names.begin(), names.end(), c.name) != names.end(); };
  if (f.name == kDevice.name) return c.overrides || is_of(kComputing);
  if (f.name == kThreads.name) return c.overrides || is_of(kComputing) || is_of(kConverting);
  return f.name != kQuiet.name || c.has_result;
}

/// All commands, with the flags that they share.
std::vector<Command> make_commands() {
  std::vector<Command> all = training_commands();
  for (Command& c : model_commands()) all.push_back(std::move(c));
  for (Command& c : all)
    for (const Flag& f : {kThreads, kDevice, kJson, kQuiet, kHelp})
      if (!has_flag(c, f.name) && (c.has_result || f.name != kJson.name))
        (has_effect(f, c) ? c.flags : c.idle_flags).push_back(f);
  return all;
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> table = make_commands();
  return table;
}

const Command* find_command(std::string_view name) {
  const auto& table = commands();
  const auto at = std::find_if(table.begin(), table.end(), [&](const Command& c) { return c.name == name; });
  return at == table.end() ? nullptr : &*at;
}

}  // namespace qtrain
