#include "app/cli/command_table.h"

#include <algorithm>
#include <array>

#include "app/cli/shared_flags.h"
#include "app/commands/commands.h"

namespace qtrain {
namespace {

using enum FlagKind;

constexpr Flag kHelp{"help", present, "", "show this help"};
constexpr Flag kJson{"json", present, "", "print one JSON document on stdout"};
constexpr Flag kDevice{"device", choice, "cpu|cuda|auto", "device to run on"};
constexpr Flag kQuiet{"quiet", present, "", "print only warnings and errors"};
constexpr Flag kModel{"model", text, "DIR", "model: a folder, or its name on the hub (OWNER/NAME)", ModelFiles::all};
constexpr Flag kTextModel{"model", text, "DIR", "model: a folder, or its name on the hub (OWNER/NAME)",
                          ModelFiles::text};
constexpr Flag kRevision{"revision", text, "REV", "branch, tag or commit of the --model on the hub (default: main)"};
constexpr Flag kFetch{"fetch", present, "", "first fetch what the config names on the hub"};
constexpr Flag kAdapter{"adapter", text, "DIR", "LoRA adapter: a folder, or its name on the hub", ModelFiles::all};
constexpr Flag kDtype{"dtype", choice, "auto|float32|bfloat16|float16",
                      "data type of the weights in memory and of GEMMs (default: as in the folder)"};
constexpr Flag kLoadIn4Bit{"load_in_4bit", present, "", "quantize the weights to 4 bits (NF4) while loading"};
constexpr Flag kLoadIn8Bit{"load_in_8bit", present, "", "quantize the weights to 8 bits while loading"};
constexpr Flag kLoadInFp8{"load_in_fp8", present, "", "store the weights in FP8, those of a model in FP8 as they are"};
constexpr Flag kMoved{
    "moved", repeated, "OLD=NEW",
    "NEW is the present path of OLD, a file or folder that the run read; may be given more than once"};
constexpr Flag kOverwrite{"overwrite", present, "", "replace existing files even if this command did not write them"};
constexpr Flag kThreads{"threads", integer, "N", "number of worker threads (default: one per processor)"};
constexpr std::string_view kConfig = "CONFIG.json [key=value ...]";

std::vector<Command> training_commands() {
  return {
      {.name = "init",
       .operands = "--model DIR --data FILE [key=value ...]",
       .summary = "Look at a model, its training data and this machine, and write a commented config that learns",
       .flags = {{"model", text, "DIR", "model: a folder, or its name on the hub (OWNER/NAME)"},
                 kRevision,
                 {"data", text, "FILE", "training data: a file, a folder, or its name on the hub"},
                 {"output", text, "FILE.json", "config to write (default: config.json); as YAML if named so"},
                 kOverwrite,
                 {"yes", present, "", "ask nothing; as if there were no terminal"},
                 {"tune", present, "", "also measure micro-batches and recomputation in short trials (qtrain tune)"}},
       .overrides = true,
       .run = run_init},
      {.name = "train",
       .operands = kConfig,
       .summary = "Train a model as the config says; same as `qtrain CONFIG.json`",
       .flags = {{"resume", text, "auto|never|DIR",
                  "auto (default) resumes from the newest valid checkpoint in output_dir, if there is one; never "
                  "starts over; DIR resumes from that checkpoint"},
                 {"stop_after", integer, "N",
                  "save a checkpoint and stop after optimizer step N, with exit code 75 as after a signal"},
                 {"events", text, "FILE", "write progress events to this file or FIFO, one JSON object per line"},
                 {"overwrite", present, "", "write to output_dir even if it holds weights that no training run wrote"}},
       .min_operands = 1,
       .max_operands = 1,
       .overrides = true,
       .answers_stops = true,
       .run = run_train},
      {.name = "eval",
       .operands = kConfig,
       .summary = "Measure loss and perplexity on the evaluation rows, for the trained model if there is one",
       .flags = {kAdapter,
                 {"base", present, "", "measure the model that training starts from, not the trained one"},
                 {"generate", present, "", "also generate an answer to each row greedily and count exact matches"},
                 {"rows", text, "FILE.jsonl", "with --generate: write the answer to every row to this file"},
                 kOverwrite,
                 {"max_new_tokens", integer, "N", "with --generate: generate at most N tokens per answer"},
                 {"limit", integer, "N", "use only the first N rows"},
                 {"batch_size", integer, "N", "with --generate: number of rows to generate together"}},
       .min_operands = 1,
       .max_operands = 1,
       .overrides = true,
       .run = run_eval},
      {.name = "validate",
       .operands = kConfig,
       .summary = "Check everything that can be checked without training, and list all problems",
       .flags = {kFetch},
       .min_operands = 1,
       .max_operands = 1,
       .overrides = true,
       .only_reads = true,
       .run = run_validate},
      {.name = "estimate",
       .operands = kConfig,
       .summary = "Estimate the memory by component, steps, tokens, time and cost of a run, without using the device",
       .flags = {kFetch,
                 {"gpu", text, "NAME", "GPU to estimate for (need not be installed)"},
                 {"cards", present, "", "compare all known GPUs: memory, tokens/s and time, one row each"},
                 {"price_per_hour", number, "X", "price of the device per hour; adds the cost of the run"},
                 {"mfu", number, "X",
                  "fraction of the GPU's peak FLOP/s that training reaches; gives one time instead of a range"},
                 {"no_data", present, "", "do not read the rows; assume that all of them are max_length tokens long"},
                 {"nodes", integer, "N", "estimate a run on N machines: memory and time for each zero_stage"},
                 {"gpus_per_node", integer, "N", "GPUs per machine (default: nproc, or 8)"},
                 {"network_gbps", number, "X",
                  "network bandwidth between machines, per GPU, in Gb/s (default: 400 with NVLink 4 and 5)"},
                 {"collectives", choice, "usual|ring|tree",
                  "algorithm of the collectives (default: the one that a run would use)"},
                 {"overlap", choice, "yes|no", "whether communication overlaps computation (default: as in a run)"},
                 {"trace", text, "DIR",
                  "compare the predicted schedule with the timelines that a run of this config recorded (profile)"}},
       .min_operands = 1,
       .max_operands = 1,
       .overrides = true,
       .run = run_estimate},
      {.name = "tune",
       .operands = kConfig,
       .summary =
           "Measure micro-batch sizes, recompute policies and offloading in short trials, and write a config with the "
           "fastest",
       .flags = {{"output", text, "FILE.json", "where to write the fastest config (default: CONFIG.tuned.json)"},
                 kOverwrite,
                 {"steps", integer, "N", "steps to measure in each trial (default: 3)"},
                 {"trials", integer, "N", "run at most N trials (default: 16)"}},
       .min_operands = 1,
       .max_operands = 1,
       .overrides = true,
       .answers_stops = true,
       .run = run_tune},
      {.name = "config",
       .operands = "[CONFIG.json [key=value ...]]",
       .summary = "Print the resolved config with the origin of each value; without a file, the reference of all keys",
       .flags = {},
       .min_operands = 0,
       .max_operands = 1,
       .overrides = true,
       .only_reads = true,
       .run = run_config},
      {.name = "preprocess",
       .operands = kConfig,
       .summary = "Prepare the training rows and print statistics of their lengths",
       .flags = {{"dump", text, "FILE.jsonl", "write every training row to this file"}, kOverwrite},
       .min_operands = 1,
       .max_operands = 1,
       .overrides = true,
       .run = run_preprocess},
      {.name = "launch-script",
       .operands = kConfig,
       .summary = "Print a file that starts the run under Slurm, Kubernetes or Docker",
       .flags = {{"slurm", present, "", "print a script for sbatch"},
                 {"k8s", present, "", "print a manifest for kubectl (a PyTorchJob)"},
                 {"docker", present, "", "print a shell script that runs a container"}},
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
       .summary = "Generate completions for prompts",
       .flags = with_sampling(
           {kModel,
            kRevision,
            kAdapter,
            kDtype,
            kLoadIn4Bit,
            kLoadIn8Bit,
            kLoadInFp8,
            {"prompt", text, "TEXT", "a single prompt"},
            {"input", text, "FILE.jsonl", "file of rows with a prompt or messages, optionally with tools"},
            {"output", text, "FILE.jsonl", "where to write the completed rows (default: stdout)"},
            kOverwrite,
            {"system", text, "TEXT", "system message to put before --prompt"},
            {"raw", present, "", "do not apply the chat template"}}),
       .run = run_generate},
      {.name = "chat",
       .operands = "--model DIR",
       .summary = "Chat with a model",
       .flags = with_sampling(
           {kModel,
            kRevision,
            kAdapter,
            kDtype,
            kLoadIn4Bit,
            kLoadIn8Bit,
            kLoadInFp8,
            {"system", text, "TEXT", "system message"},
            {"compare", present, "", "with --adapter: also show the base model's answer to each message"}}),
       .has_result = false,
       .answers_stops = true,
       .run = run_chat},
      {.name = "serve",
       .operands = "--model DIR",
       .summary = "Serve a model and its adapters over an OpenAI-compatible HTTP API, with a web page to try them",
       .flags = {kModel,
                 kRevision,
                 {"adapter", repeated, "[NAME=]DIR",
                  "LoRA adapter to serve; clients request it by NAME. May be given more than once", ModelFiles::all},
                 kDtype,
                 kLoadIn4Bit,
                 kLoadIn8Bit,
                 kLoadInFp8,
                 {"host", text, "H",
                  "address to listen on (default: 127.0.0.1); one that other machines can reach needs a token"},
                 {"port", integer, "N", "port to listen on (default: 8000); 0 picks a free one"},
                 {"token", text, "T", "API key that clients must send"},
                 {"token_file", text, "FILE", "read the API key from this file"},
                 {"max_context", integer, "N",
                  "maximum tokens of prompt and answer together (default: the model's limit, at most 32768)"},
                 {"max_new_tokens", integer, "N",
                  "maximum tokens of an answer if the request sets no limit (default: 1024)"},
                 {"max_batch", integer, "N", "maximum number of answers decoded together (default: 16)"},
                 {"max_queue", integer, "N", "maximum number of queued requests (default: 64)"},
                 {"max_connections", integer, "N", "maximum number of open connections (default: 64)"},
                 {"cache_tokens", integer, "N",
                  "size of the key/value cache in tokens, shared by all answers (default: as memory allows)"}},
       .answers_stops = true,
       .run = run_serve},
      {.name = "tokenize",
       .operands = "--model DIR",
       .summary = "Convert strings to token ids: one JSON string per line in, one JSON array per line out",
       .flags = {kTextModel,
                 kRevision,
                 {"input", text, "FILE", "read this file instead of stdin"},
                 {"no_special", present, "", "do not add special tokens; with --decode, drop them"},
                 {"decode", present, "", "convert token ids to strings: arrays of ids in, strings out"}},
       .only_reads = true,
       .run = run_tokenize},
      {.name = "render",
       .operands = "CONFIG [key=value ...] | --model DIR --input FILE.jsonl",
       .summary = "Print rows as text, one JSON string per line: the training rows of a config, or a file of messages "
                  "through a model's chat template",
       .flags = {kTextModel,
                 kRevision,
                 {"input", text, "FILE.jsonl", "file of rows with messages, used instead of a config"},
                 {"add_generation_prompt", present, "", "end each text with the start of the assistant's turn"}},
       .min_operands = 0,
       .max_operands = 1,
       .overrides = true,
       .only_reads = true,
       .run = run_render},
      {.name = "datasets",
       .operands = "DIR",
       .summary =
           "List the training data in a folder: format, row shape, number of rows, size, and why a file cannot be read",
       .flags = {{"text_field", text, "NAME", "column that holds the text of `text` rows"}},
       .min_operands = 1,
       .max_operands = 1,
       .only_reads = true,
       .run = run_datasets},
      {.name = "import",
       .operands = "FILE.gguf --output DIR",
       .summary = "Convert a GGUF file to a Hugging Face folder",
       .flags = {{"output", text, "DIR", "folder to write"},
                 kOverwrite,
                 {"dtype", choice, "auto|float32|bfloat16|float16", "data type of the weights to write"}},
       .min_operands = 1,
       .max_operands = 1,
       .run = run_import,
       .files = ModelFiles::all},
      {.name = "merge",
       .operands = "--model DIR --adapter DIR --output DIR",
       .summary = "Merge LoRA adapters into the 32- or 16-bit weights of their model",
       .flags = {kModel,
                 kRevision,
                 {"adapter", repeated, "DIR", "LoRA adapter; may be given more than once to merge several",
                  ModelFiles::all},
                 {"weights", text, "X,...", "factor for each adapter (default: 1)"},
                 {"dtype", choice, "auto|float32|bfloat16|float16",
                  "data type of the merged weights (default: as in the folder); the rounding error is reported"},
                 {"output", text, "DIR", "folder to write"},
                 kOverwrite,
                 {"data", text, "FILE.jsonl", "compare the loss of the adapter and of the merged model on these rows"}},
       .run = run_merge},
      {.name = "export",
       .operands = "--model DIR --output FILE.gguf",
       .summary = "Convert a Hugging Face folder, or a LoRA adapter, to a GGUF file",
       .flags = {kModel,
                 kRevision,
                 {"adapter", repeated, "DIR", "convert this LoRA adapter instead of the model, for llama.cpp's --lora",
                  ModelFiles::all},
                 {"merge", present, "", "with --adapter: write the model with the adapter merged into it"},
                 {"output", text, "FILE.gguf", "file to write"},
                 kOverwrite,
                 {"type", choice, "auto|f32|f16|bf16|q8_0|q4_0|q4_k",
                  "data type of the weight matrices (default: as in the folder)"}},
       .run = run_export},
      {.name = "quantize",
       .operands = "--model DIR --output DIR",
       .summary = "Quantize a model to 4 bits in the format of bitsandbytes",
       .flags = {kModel,
                 kRevision,
                 {"output", text, "DIR", "folder to write"},
                 kOverwrite,
                 {"quant_type", choice, "nf4|fp4", "4-bit data type (default: nf4)"},
                 {"blocksize", integer, "N", "number of values per scale: 32, 64, ..., 4096 (default: 64)"},
                 {"double_quant", choice, "true|false", "quantize the scales too (default: true)"},
                 {"compute_dtype", choice, "float32|bfloat16|float16",
                  "data type that transformers will compute in (default: as in the folder)"},
                 {"skip_modules", repeated, "NAME",
                  "linear layer (its name or a part of it) to leave unquantized; may be given more than once"}},
       .run = run_quantize},
      {.name = "inspect",
       .operands = "PATH",
       .summary = "Show what is in a model folder, adapter, checkpoint, safetensors or GGUF file",
       .flags = {{"verify", present, "",
                  "check the hashes of a checkpoint, or of the final model in an output directory"},
                 {"tensors", present, "", "list every tensor"}},
       .min_operands = 1,
       .max_operands = 1,
       .only_reads = true,
       .run = run_inspect,
       .files = ModelFiles::all},
      {.name = "report",
       .operands = "RUN_DIR",
       .summary = "Write an HTML page about a run, finished or still going: curves, speed, memory, samples, config",
       .flags = {{"output", text, "FILE.html", "page to write (default: report.html in RUN_DIR)"}, kOverwrite},
       .min_operands = 1,
       .max_operands = 1,
       .run = run_report},
      {.name = "compare",
       .operands = "RUN_DIR RUN_DIR ...",
       .summary = "Compare runs side by side: final results, config keys that differ, and a page with their curves",
       .flags = {{"output", text, "FILE.html", "page to write (default: compare.html)"}, kOverwrite},
       .min_operands = 2,
       .max_operands = 32,
       .run = run_compare},
      {.name = "verify",
       .operands = "RUN_DIR",
       .summary = "Verify a run: check the hashes of all its files, and repeat some of its steps bit for bit",
       .flags = {{"steps", integer, "N", "repeat at least N steps, chosen at random (default: 1); 0 repeats none"},
                 {"scratch", text, "DIR", "folder for temporary files (default: the system's)"},
                 {"statement", text, "FILE", "write an in-toto statement if the run passes"},
                 kMoved,
                 {"earlier", repeated, "STEP:KEY=VALUE",
                  "steps up to STEP were trained with this value, and their checkpoint no longer exists"},
                 kOverwrite},
       .min_operands = 1,
       .max_operands = 1,
       .run = run_verify},
      {.name = "reproduce",
       .operands = "RUN_DIR",
       .summary = "Repeat a run from its resolved_config.json in another folder",
       .flags = {{"output", text, "DIR", "output directory for the new run"}, kMoved},
       .min_operands = 1,
       .max_operands = 1,
       .answers_stops = true,
       .run = run_reproduce},
      {.name = "clean",
       .operands = "OUTPUT_DIR",
       .summary = "List the checkpoints of earlier runs that were set aside; with --yes, delete them",
       .flags = {{"yes", present, "", "delete the listed checkpoints"}},
       .min_operands = 1,
       .max_operands = 1,
       .run = run_clean},
      {.name = "bench",
       .operands = "[FILTER | step [CASE | CONFIG.json [key=value ...]]]",
       .summary =
           "Benchmark ops relative to the device's measured copy and GEMM speed; `step` benchmarks the kernels of a "
           "training step",
       .flags = {{"json", file_or_stdout, "[FILE]",
                  "write the results as one JSON document to this file, or to stdout"},
                 kOverwrite,
                 {"dtype", choice, "float32|bfloat16",
                  "data type of activations and weights (default: float32, on a GPU bfloat16)"},
                 {"small", present, "", "run tiny shapes once, to check that everything works; the times mean nothing"},
                 {"nvtx", present, "", "mark ops with NVTX ranges for Nsight Systems and Nsight Compute"}},
       .min_operands = 0,
       .max_operands = 2,
       .overrides = true,
       .answers_stops = true,
       .run = run_bench},
      {.name = "monitor",
       .operands = "",
       .summary = "Monitor GPUs, processors, memory, disks and network, and name the bottleneck of a run",
       .flags = {{"pid", integer, "N", "monitor this process and its child processes"},
                 {"run", text, "DIR",
                  "monitor the run with this output_dir: its process, tokens per second, time waiting for data"},
                 {"interval", number, "S", "seconds between samples (default: 1)"},
                 {"duration", number, "S", "stop after S seconds (default: run until Ctrl-C)"},
                 {"json", file_or_stdout, "[FILE]",
                  "write samples and summary as one JSON document to this file, or to stdout"},
                 kOverwrite},
       .answers_stops = true,
       .run = run_monitor},
      {.name = "doctor",
       .operands = "",
       .summary = "Check processor, memory, libraries and devices, and explain what each missing part costs",
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

/// Whether a flag that all commands accept has an effect in this one.
bool has_effect(const Flag& f, const Command& c) {
  constexpr std::array<std::string_view, 3> kComputing{"generate", "chat", "serve"},
      kConverting{"merge", "quantize", "export"};
  const auto is_of = [&](const auto& names) { return std::find(names.begin(), names.end(), c.name) != names.end(); };
  if (f.name == kDevice.name) return c.overrides || is_of(kComputing);
  if (f.name == kThreads.name) return c.overrides || is_of(kComputing) || is_of(kConverting);
  return f.name != kQuiet.name || c.has_result;
}

/// All commands, with the common flags added.
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
